"""Python's garbage collector during a load."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep the collector from walking the user's whole heap because a load makes many small objects.

    One full pass over a process with transformers loaded takes 0.27 s, ten times a whole relaunch.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def resumed_collection() -> Iterator[None]:
    """Let the collector work during a compile, which takes long and makes much garbage."""
    enabled = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not enabled:
            gc.disable()
