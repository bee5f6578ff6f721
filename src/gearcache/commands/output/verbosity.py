"""The options `-q` and `-v`, which mean the same for every command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from gearcache.terminal import is_drawable

Function = TypeVar("Function", bound=Callable[..., Any])
_KEY = "gearcache.verbosity"


def verbosity_options(function: Function) -> Function:
    """Add `--quiet` and `--verbose`; `is_quiet` and `is_verbose` return their values."""
    quiet = click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_set_verbosity,
        help="Print data, warnings and errors only: nothing when all is well.",
    )
    verbose = click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=_set_verbosity, help="Print more, and the log."
    )
    return quiet(verbose(function))


def is_quiet() -> bool:
    """Whether the running command was asked to be quiet."""
    return _verbosity() == "quiet"


def is_verbose() -> bool:
    """Whether the running command was asked to print more."""
    return _verbosity() == "verbose"


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress on a terminal while the block runs; yields a function of the parts done and of all parts."""
    if not is_drawable(sys.stderr) or is_quiet():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show_log(level: int) -> None:
    """Show log lines of gearcache on stderr, from a level on."""
    logger = logging.getLogger("gearcache")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    logger.setLevel(level)


def _verbosity() -> str:
    context = click.get_current_context(silent=True)
    return str(context.meta.get(_KEY, "")) if context is not None else ""


def _set_verbosity(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value:
        return
    name = str(parameter.name)
    if context.meta.setdefault(_KEY, name) != name:
        raise click.UsageError("--quiet and --verbose exclude each other")
    if name == "verbose":
        show_log(logging.INFO)
