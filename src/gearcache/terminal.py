"""What a stream can show: a terminal that may be drawn on, one for plain text only, or a pipe."""

from __future__ import annotations

import os
from typing import IO


def is_drawable(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal that takes colours and moves of the cursor.

    Not with `TERM=dumb`, as editors and CI set it, nor where `NO_COLOR` is set (https://no-color.org): no escape is
    written then, bars included.
    """
    if stream is None or not stream.isatty():
        return False
    return os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
