"""A host that allows no more threads."""

from __future__ import annotations

import threading

_start = threading.Thread.start


class NoThreads:
    """Refuses to start threads as Python does, until `after` more have started."""

    after = 0

    def start(self, thread: threading.Thread) -> None:
        """Start a thread, or raise Python's error."""
        if self.after <= 0:
            raise RuntimeError("can't start new thread")
        self.after -= 1
        _start(thread)
