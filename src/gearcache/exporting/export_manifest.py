"""The list of the files that `dynamo_export` wrote into a folder; it is stored there and marks the folder as ours."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from gearcache.cache.files.trust import descriptor_digest

MANIFEST = ".gearcache-export.json"
_VERSION = 2
#: Files that users are asked to complete by hand; files that they have edited belong to them.
_EDITED_BY_HAND = ".json"
_Rank = int | None


def walk(folder: Path, below: str = "") -> Iterator[str]:
    """Yield the names of all files in a folder, and of empty folders with a `/` at the end; links are files.

    Names are relative; the list itself is left out. `OSError` for anything that cannot be read.
    """
    with os.scandir(folder / below) as entries:
        sorted_entries = sorted(entries, key=lambda entry: entry.name)
    if not sorted_entries and below:
        yield below
    for entry in sorted_entries:
        if entry.is_dir(follow_symlinks=False):
            yield from walk(folder, f"{below}{entry.name}/")
        elif below or entry.name != MANIFEST:
            yield f"{below}{entry.name}"


def write_manifest(folder: Path, ranks: Collection[_Rank]) -> None:
    """Write the list of a folder that an export of these ranks (None without ranks) has filled."""
    files = {name: _digest(folder, name) for name in walk(folder)}
    text = json.dumps({"version": _VERSION, "ranks": list(ranks), "files": files}, indent=1)
    (folder / MANIFEST).write_text(text)


def what_is_not_ours(folder: Path, ranks: Collection[_Rank] | None = None) -> str:
    """Return a sentence that says why an export of `ranks` may not replace a folder; empty if it may.

    It may if the folder contains only files that exports wrote and, with `ranks`, none of another rank.
    """
    digests, export_ranks = _read_manifest(folder)
    for name in walk(folder):
        path = folder / name
        if name not in digests:
            return f"`{str(path).rstrip('/')}` is not from an earlier gearcache.dynamo_export"
        is_file = path.is_file() and not path.is_symlink()
        if not is_file or (digests[name] is not None and _digest(folder, name) != digests[name]):
            return f"`{path}` was edited since it was exported"
    other_ranks = [rank for rank in export_ranks if ranks is not None and rank not in ranks]
    return f"`{folder}` holds the export of rank {', '.join(map(str, other_ranks))}" if other_ranks else ""


def _digest(folder: Path, name: str) -> str | None:
    """Return the sha256 of a file that users may edit; None for other files."""
    if not name.endswith(_EDITED_BY_HAND):
        return None
    descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return descriptor_digest(descriptor)
    finally:
        os.close(descriptor)


def _read_manifest(folder: Path) -> tuple[dict[str, str | None], list[int]]:
    """Return the files of a list and the ranks that wrote them; nothing if there is no readable list."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["version"] != _VERSION:
            return {}, []
        return dict(manifest["files"]), [rank for rank in manifest["ranks"] if rank is not None]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}, []
