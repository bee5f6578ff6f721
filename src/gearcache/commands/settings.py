"""Prints the settings of the environment, for `gearcache doctor --settings`."""

from __future__ import annotations

import os
from pathlib import Path

from gearcache.cache.layout import REMOTES_VARIABLE as REMOTES
from gearcache.cache.remote.urls import masked
from gearcache.commands.checks.wrong_variables import wrong_variables
from gearcache.commands.common import Exit, layout_at, print_json, stop, warn
from gearcache.commands.output.listing import Column, Listing
from gearcache.variables import VARIABLES, told, unknown_variables

_SETTINGS = Listing(
    (
        Column("Setting", "name"),
        Column("Value", "value"),
        Column("From", "origin"),
        Column("What it is for", "purpose"),
    )
)


def show_settings(cache_dir: Path | None, as_json: bool) -> None:
    """Show every setting: its value, its origin, and its purpose; the first one is the folder of the cache."""
    rows = []
    for variable in VARIABLES:
        value = os.environ.get(variable.name)
        if variable.name == REMOTES and value:
            value = masked(value)
        origin = "environment" if value else "default"
        rows.append(
            {
                "name": variable.name,
                "value": value or variable.default,
                "origin": origin,
                "purpose": variable.purpose,
            }
        )
    rows[0]["value"] = str(layout_at(cache_dir, may_be_new=True).root)
    if cache_dir is not None:
        rows[0]["origin"] = "--cache-dir"
    unknown = unknown_variables(os.environ)
    if as_json:
        print_json("doctor", {"settings": rows, "unknown": unknown})
    else:
        _SETTINGS.print(rows)
    problems = wrong_variables(os.environ)
    for text in (*problems, *(told(*each) for each in unknown.items())):
        warn(text)
    if problems or unknown:
        stop(Exit.WRONG)
