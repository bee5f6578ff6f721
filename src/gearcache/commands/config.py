"""`gearcache config`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gearcache.cache.layout import REMOTES_VARIABLE as REMOTES
from gearcache.cache.layout import SHAPES_VARIABLE as SHAPES
from gearcache.cache.remote.urls import masked
from gearcache.commands.common import Exit, common_options, layout_at, print_json, stop, warn
from gearcache.commands.table import print_table
from gearcache.commands.variables import VARIABLES, told, unknown_variables


@click.command("config")
@common_options
def command(cache_dir: Path | None, as_json: bool) -> None:
    """Show every setting of the environment: its value, where that is from, and what it is for.

    Options of one cached method (`gearcache.CompilerConfig`) go before these. Exit code 1 when a variable of this
    prefix is set that nothing reads.
    """
    rows = []
    for variable in VARIABLES:
        value = os.environ.get(variable.name)
        if variable.name in (REMOTES, SHAPES) and value:
            value = masked(value)
        rows.append([variable.name, value or variable.default, "environment" if value else "default", variable.purpose])
    rows[0][1] = str(layout_at(cache_dir, may_be_new=True).root)
    if cache_dir is not None:
        rows[0][2] = "--cache-dir"
    unknown = unknown_variables(os.environ)
    if as_json:
        settings = [dict(zip(("name", "value", "origin", "purpose"), row, strict=True)) for row in rows]
        print_json("config", {"settings": settings, "unknown": unknown})
    else:
        print_table(("Setting", "Value", "From", "What it is for"), rows)
    for name, meant in unknown.items():
        warn(told(name, meant))
    if unknown:
        stop(Exit.WRONG)
