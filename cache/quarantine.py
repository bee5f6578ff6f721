"""Taking corrupt files out of the way, without losing them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from gearcache.cache.atomic import move_aside, write_atomic
from gearcache.cache.layout import Layout
from gearcache.errors import CacheError, CorruptEntry


def quarantine(layout: Layout, fault: CorruptEntry, name: str, check: Callable[[], object]) -> None:
    """Move the file of a fault, and nothing else, to the quarantine, beside a `.reason` text.

    `check` finds the fault again: another process may have put a sound file there meanwhile, which stays.
    Never raises for the disk: in a cache that cannot be written the corrupt file stays, and fails again.
    """
    target = layout.quarantine(f"{name}-{os.urandom(4).hex()}")
    with suppress(OSError, CacheError):
        layout.prepare()
        try:
            check()
        except CorruptEntry:
            move_aside(fault.path, target)
            write_atomic(target.with_name(f"{target.name}.reason"), f"{fault}\n".encode())
