"""What the commands share: options, exit codes, finding entries, and printing for people, pipes and programs."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.formats import other_formats
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.key import FORMAT_VERSION
from gearcache.cache.layout import Layout, resolve_root
from gearcache.cache.quantities import parse_age, parse_size
from gearcache.cache.signature import KEY_FILE_VARIABLE, Signer
from gearcache.commands.printing import note as note
from gearcache.commands.printing import printable_json
from gearcache.commands.printing import warn as warn

Function = TypeVar("Function", bound=Callable[..., Any])
_DIGEST_SHOWN = 12
_INDENTED_ITEMS = 100


class Exit(IntEnum):
    """Exit codes; `gearcache.cli` documents them."""

    WRONG = 1
    USAGE = 2
    CACHE = 3
    IN_USE = 4
    INTERRUPTED = 130


class Size(click.ParamType):  # type: ignore[type-arg]
    """A size such as `10GB`, in bytes."""

    name = "size"

    def convert(self, value: Any, parameter: Any, context: Any) -> int:
        """Return bytes, or fail with what is allowed."""
        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(str(error), parameter, context)


class Age(click.ParamType):  # type: ignore[type-arg]
    """An age such as `7d`, in seconds."""

    name = "age"

    def convert(self, value: Any, parameter: Any, context: Any) -> float:
        """Return seconds, or fail with what is allowed."""
        try:
            return value if isinstance(value, float) else parse_age(value)
        except ValueError as error:
            self.fail(str(error), parameter, context)


def cache_dir_option(function: Function) -> Function:
    """Add `--cache-dir`."""
    return click.option(
        "--cache-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Root of the cache; else $TORCHAIR_CACHE_HOME, else ./.torchair_cache.",
    )(function)


def json_option(function: Function) -> Function:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def dry_run_option(function: Function) -> Function:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(function)


def layout_at(cache_dir: Path | None, *, may_be_new: bool = False) -> Layout:
    """Return the layout of the cache that is meant; a usage error where `--cache-dir` names no folder."""
    if cache_dir is not None and not may_be_new and not cache_dir.exists():
        raise click.UsageError(f"there is no cache at `{cache_dir}`")
    return Layout(resolve_root(cache_dir, os.environ))


def environment_signer() -> Signer | None:
    """Return what checks signatures, where `$GEARCACHE_HMAC_KEY_FILE` asks for them."""
    key_file = os.environ.get(KEY_FILE_VARIABLE)
    return Signer(Path(key_file)) if key_file else None


def short_name(entry: EntryRow) -> str:
    """Return `<label>-<start of the key>`, which names the entry in every command."""
    return f"{entry.label}-{entry.digest[:_DIGEST_SHOWN]}"


def note_faults(catalog: Catalog) -> None:
    """Warn of what could not be read in the last listing, and of what other versions left."""
    for fault in catalog.faults:
        warn(str(fault))
    note_other_formats(catalog.layout)


def note_other_formats(layout: Layout) -> None:
    """Say that the cache holds folders of other format versions, which this one leaves alone."""
    for folder in other_formats(layout):
        kind = "a newer" if folder.version > FORMAT_VERSION else "an older"
        note(
            f"`{folder.path}` holds {count(folder.entries, 'entry', 'entries')} of {kind} gearcache "
            f"({size_text(folder.size)}), left alone; `gearcache clear --format {folder.version}` removes them"
        )


def print_json(value: Any) -> None:
    """Print one JSON document, indented; of a long list, one item a line: `indent` takes seconds for 100,000.

    JSON has no NaN and no infinity: such numbers, which a key may hold, are texts.
    """
    try:
        text = _json(value)
    except ValueError:
        text = _json(_finite(value))
    click.echo(printable_json(text))


def _json(value: Any) -> str:
    if isinstance(value, list) and len(value) > _INDENTED_ITEMS:
        return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False, allow_nan=False) for item in value) + "\n]"
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def count(number: int, one: str, many: str | None = None) -> str:
    """Return `1 entry`, `2 entries`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def size_text(size: int) -> str:
    """Return bytes as people read them, in powers of 1000 as `--max-size` takes them."""
    if size < 1000:
        return f"{size} B"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            break
    return f"{value:.1f} {unit}"


def ago_text(moment: float, now: float | None = None) -> str:
    """Return how long ago something was: `now`, `5 min ago`, `3 h ago`, `12 d ago`."""
    seconds = (time.time() if now is None else now) - moment
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


def entry_plain(entry: EntryRow, catalog: Catalog) -> dict[str, Any]:
    """Return an entry as JSON data."""
    return {
        "method": entry.label,
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
