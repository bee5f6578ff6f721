"""Shared by the commands: options, exit codes, finding entries, and output for people, pipes and programs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.folder_marks import other_formats, version_of
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.files.trust import check_folders
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import ROOT_VARIABLE, Layout, resolve_root
from gearcache.cache.locks.use import User
from gearcache.cache.quantities import parse_age, parse_size
from gearcache.cache.quantities import size_text as size_text
from gearcache.cache.remote.trust import Trust
from gearcache.commands.output.document import print_json as print_json
from gearcache.commands.output.printing import note as note
from gearcache.commands.output.printing import shortened
from gearcache.commands.output.printing import tell as tell
from gearcache.commands.output.printing import warn as warn
from gearcache.commands.output.verbosity import verbosity_options
from gearcache.errors import CacheError

Function = TypeVar("Function", bound=Callable[..., Any])
#: `package.module:function` or `file.py:function`; shells complete the file.
TARGET = click.Path()
_COMMAND_SHOWN = 72


class Exit(IntEnum):
    """Exit codes; `gearcache.cli` documents them."""

    WRONG = 1
    USAGE = 2
    CACHE = 3
    IN_USE = 4
    INTERRUPTED = 130


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A number with a unit, such as the size `10GB` in bytes, or the age `7d` in seconds."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, parameter: Any, context: Any) -> float:
        """Return the number, or fail with a message that names the allowed forms."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), parameter, context)


SIZE = Quantity("size", parse_size)
AGE = Quantity("age", parse_age)


def cache_dir_option(function: Function) -> Function:
    """Add `--cache-dir`."""
    return click.option(
        "--cache-dir",
        type=click.Path(file_okay=False, readable=False, path_type=Path),  # exit code 3 where it cannot be read
        help="Root of the cache; else $TORCHAIR_CACHE_HOME, else ./.torchair_cache.",
    )(function)


def json_option(function: Function) -> Function:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def common_options(function: Function) -> Function:
    """Add the options of every command: `--cache-dir`, `--json`, `--quiet` and `--verbose`."""
    return cache_dir_option(json_option(verbosity_options(function)))


def dry_run_option(function: Function) -> Function:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(function)


def layout_at(cache_dir: Path | None, *, may_be_new: bool = False) -> Layout:
    """Return the layout of the cache to use; a usage error if `--cache-dir` does not name a folder, `CacheError`
    if the variable names a file, `UnsafePath` if others can write to it.

    On a fresh host the folder of `$TORCHAIR_CACHE_HOME`, or the default in the working folder, may not exist yet, and a
    given folder may be empty: that is a note, not an error.
    """
    layout = Layout(resolve_root(cache_dir, os.environ))
    if may_be_new:
        return layout
    if layout.root.is_file():
        raise CacheError(f"`{layout.root}` is a file, not the folder of a cache; name another one")
    if layout.bucket.exists():
        check_folders(layout.root, layout.bucket)  # else each file in it would be a fault
        return layout
    if cache_dir is not None and not layout.root.exists():
        raise click.UsageError(f"there is no cache at `{cache_dir}`")
    if not other_formats(layout.root):
        origin = f"the default; --cache-dir and ${ROOT_VARIABLE} name others"
        if cache_dir is not None or os.environ.get(ROOT_VARIABLE):
            origin = "--cache-dir" if cache_dir is not None else f"${ROOT_VARIABLE}"
        note(f"there is no cache at `{layout.root}` yet ({origin})")
    return layout


def environment_trust() -> Trust:
    """Return the keys that verify and make signatures, from the environment; raises `OptionError`, `UnsafePath`."""
    return Trust.from_environment(os.environ)


def note_faults(catalog: Catalog) -> None:
    """Warn of entries that could not be read in the last listing, and of folders of other versions."""
    for fault in catalog.faults:
        warn(str(fault))
    note_other_formats(catalog.layout)


def note_other_formats(layout: Layout) -> None:
    """Print that the cache holds folders of other format versions, which this version does not touch."""
    for folder in other_formats(layout.root):
        kind = "a newer" if (version_of(folder.name) or 0) > FORMAT_VERSION else "an older"
        note(
            f"`{folder}` holds entries of {kind} gearcache, left alone: delete the folder when no process of that "
            "version uses it"
        )


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return `1 entry`, `2 entries`."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def ago_text(moment: float) -> str:
    """Return how long ago something was: `now`, `5 min ago`, `3 h ago`, `12 d ago`."""
    seconds = time.time() - moment
    for limit, divisor, unit in ((60, 1, ""), (3600, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // divisor)} {unit} ago" if unit else "now"
    return f"{int(seconds // 86400)} d ago"


def seconds_text(seconds: float) -> str:
    """Return a duration: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def user_text(user: User) -> str:
    """Return a process as its number and the end of a long command, by which people recognise it."""
    return f"{user.pid} ({shortened(user.command or 'of unknown command', _COMMAND_SHOWN)})"


def entry_plain(entry: EntryRow, catalog: Catalog) -> dict[str, Any]:
    """Return an entry as JSON data."""
    return {
        "method": entry.method,
        "name": entry.short_name,
        "key": entry.digest,
        "ranks": entry.ranks,
        "path": catalog.path_text(entry),
        "gears": list(entry.gears),
        "variants": entry.variants,
        "size": entry.size,
        "created": entry.created,
        "last_use": entry.last_use,
        "hits": entry.hits,
        "compile_seconds": entry.compile_seconds,
        "torch": entry.torch,
    }


def stop(code: Exit) -> NoReturn:
    """End the command with an exit code."""
    sys.stdout.flush()
    raise click.exceptions.Exit(int(code))
