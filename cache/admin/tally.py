"""Misses by method and reason, counted over all processes: one file for each pair, one byte a miss."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from gearcache.cache.files.trust import open_regular
from gearcache.cache.layout import Layout, is_label

_FOLDER = "misses"
_MARK = b"-"
#: Bytes at the start and at the end of a file that are checked.
_LOOKED_AT = 64


def count_misses(layout: Layout, label: str, reasons: Iterable[str]) -> None:
    """Add misses of a method; a cache that cannot be written loses them. Appends need no lock."""
    folder = layout.bucket / _FOLDER
    with suppress(OSError):
        for subfolder in (folder, folder / (label if is_label(label) else "_")):
            subfolder.mkdir(mode=0o700, exist_ok=True)
        for reason, count in Counter(reasons).items():
            descriptor = open_regular(subfolder / _name(reason), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(descriptor, _MARK * count)
            finally:
                os.close(descriptor)


def misses(layout: Layout) -> dict[str, dict[str, int]]:
    """Label of the method -> reason -> misses since the cache was made."""
    misses_by_label: dict[str, dict[str, int]] = {}
    for folder in _sorted(layout.bucket / _FOLDER):
        for item in _sorted(folder) if is_label(folder.name) else ():
            if number := _count(item):
                misses_by_label.setdefault(folder.name, {})[item.name.replace("_", " ")] = number
    return misses_by_label


def _count(path: Path) -> int:
    """Return how often a file was counted in; 0 for a file that gearcache did not write."""
    if _name(path.name) != path.name:
        return 0
    with suppress(OSError):
        descriptor = open_regular(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            ends = os.pread(descriptor, _LOOKED_AT, 0) + os.pread(descriptor, _LOOKED_AT, max(0, size - _LOOKED_AT))
            return size if ends.strip(_MARK) == b"" else 0
        finally:
            os.close(descriptor)
    return 0


def _sorted(folder: Path) -> Iterator[Path]:
    paths: list[Path] = []
    with suppress(OSError):
        if not folder.is_symlink():
            paths = sorted(folder.iterdir())
    yield from paths


def _name(reason: str) -> str:
    safe = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in reason)
    return safe or "_"
