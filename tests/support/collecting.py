"""The garbage collector of a process that makes many objects which live until its end."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Let the collector come seldom, and leave out what is there: it takes a tenth of the time of many traces."""
    collect_and_freeze()
    gc.set_threshold(10_000, 20, 20)


def collect_and_freeze() -> None:
    """Remove what is garbage, and leave the rest out."""
    gc.collect()
    gc.freeze()
