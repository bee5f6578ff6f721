"""Whether a stream is a terminal with colours and cursor moves, a plain terminal, or a pipe."""

from __future__ import annotations

import os
from typing import IO


def is_drawable(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal that takes colours and moves of the cursor.

    `TERM=dumb`, which editors and CI set, and `NO_COLOR` (https://no-color.org) turn all escapes off, bars included.
    """
    if stream is None or not stream.isatty():
        return False
    return os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
