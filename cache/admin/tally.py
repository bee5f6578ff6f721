"""Misses by reason, counted over all processes: one file a reason, one byte a miss."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from gearcache.cache.layout import Layout
from gearcache.cache.opening import open_regular

_FOLDER = "misses"


def count_misses(layout: Layout, reasons: Iterable[str]) -> None:
    """Add misses; a cache that cannot be written loses them. Appends of one byte need no lock."""
    folder = layout.bucket / _FOLDER
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        for reason in reasons:
            descriptor = open_regular(folder / _name(reason), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(descriptor, b"-")
            finally:
                os.close(descriptor)


def misses(layout: Layout) -> dict[str, int]:
    """Reason -> misses since the cache was made."""
    found = {}
    with suppress(OSError):
        for item in sorted(os.scandir(layout.bucket / _FOLDER), key=lambda item: item.name):
            found[item.name.replace("_", " ")] = item.stat(follow_symlinks=False).st_size
    return found


def _name(reason: str) -> str:
    safe = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in reason)
    return safe or "_"
