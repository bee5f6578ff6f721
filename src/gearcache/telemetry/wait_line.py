"""Says that a call waits for another process of the host, which compiles the same method."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from gearcache.terminal import print_progress, shows_progress
from gearcache.threads import started

logger = logging.getLogger("gearcache")
#: A shorter wait prints nothing.
_SILENT_SECONDS = 2.0


class WaitLine:
    """Prints one line to stderr if the wait is long; `GEARCACHE_PROGRESS=0` leaves it to the log."""

    def __init__(self, method: str, timeout: float) -> None:
        """`timeout`: seconds after which the call waits no longer."""
        self._method, self._timeout = method, timeout
        self._timer = threading.Timer(_SILENT_SECONDS, self._print)
        self._timer.daemon = True

    def __enter__(self) -> WaitLine:
        try:
            started(self._timer)
        except BaseException:  # of a signal handler: without a `with`, nobody else would stop the timer
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Record that the wait is over."""
        self._timer.cancel()

    def _print(self) -> None:
        limit = f"{self._timeout:g} s at most"
        line = f"another process or thread of this host compiles `{self._method}`: waiting for its graphs, {limit}"
        logger.info("%s", line)
        if shows_progress():
            print_progress(line)
