"""What the terminal takes: colours and cursor moves, plain lines, or nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO


def is_drawable(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal that takes colours and moves of the cursor.

    `TERM=dumb`, which editors and CI set, and `NO_COLOR` (https://no-color.org) turn all escapes off, bars included.
    """
    if stream is None or not stream.isatty():
        return False
    return os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def shows_progress() -> bool:
    """Whether progress is shown at all: `GEARCACHE_PROGRESS`."""
    return sys.stderr is not None and os.environ.get("GEARCACHE_PROGRESS", "1") not in ("0", "false")


def print_progress(line: str) -> None:
    """Print a line about progress to stderr, which may be closed by now."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"gearcache: {line}\n")
