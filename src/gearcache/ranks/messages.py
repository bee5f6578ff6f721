"""Messages that a rank leaves in the store of its job for ranks that arrive late or miss it.

The values of a meeting answer the token of the first rank, but a message does not, so it may be left from an earlier
start of the job with the same store. It therefore carries the time, and counts only if it is newer than the process
that reads it. All ranks of a start exist before one of them leaves a message: `init_process_group` waits for all. If
the clocks of hosts differ, a message may not count; then the deadline ends the wait.
"""

from __future__ import annotations

import time
from typing import Any

from gearcache.ranks.line import Line

_OVER = "over"
GONE = "the store of the job cannot be reached any more: who hosts it may have ended; no rank knows of the others"


class Stopped(Exception):
    """The ranks do not agree: the rank that is the cause, and why."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank, self.reason = rank, reason


def silent(timeout: float) -> str:
    """Return the reason for a first rank that does not answer; `timeout` in seconds."""
    return f"it did not answer within {timeout:g} s, and it is the one that decides"


class Words:
    """The messages of one rank in one agreement."""

    def __init__(self, line: Line, number: int, rank: int, since: float) -> None:
        """`number` of the agreement; messages older than `since` (seconds since the epoch) do not count."""
        self._line = line
        self._number = number
        self._rank = rank
        self._since = since
        #: What this rank agrees on.
        self.about = ""

    def come(self) -> None:
        """Record at which agreement this rank is."""
        self._line.tell(self._at(self._rank), {"time": time.time(), "number": self._number, "about": self.about})

    def end(self, stop: Stopped) -> Stopped:
        """End the agreement for ranks not met yet; returns its outcome, which another rank may have set before."""
        message = {"time": time.time(), "rank": stop.rank, "reason": stop.reason}
        return _stop_of(self._line.settle(_OVER, message, self._counts))

    def ended(self) -> Stopped | None:
        """Return how the agreement has ended; None if it has not."""
        message = self._line.ask(_OVER)
        return _stop_of(message) if message is not None and self._counts(message) else None

    def absence(self, rank: int) -> str:
        """Return where an absent rank is instead, as the end of a sentence."""
        this_agreement = f"this is agreement {self._number}{_about_text(self.about)}"
        message = self._line.ask(self._at(rank))
        if message is None or not self._counts(message):
            return f"; it has come to no agreement of this job yet, and {this_agreement}"
        if message["number"] == self._number:
            return f"; it was in agreement {self._number}{_about_text(self.about)}"
        last_agreement = f"agreement {message['number']}{_about_text(message['about'])}"
        return f"; it came last to {last_agreement}, and {this_agreement}: every rank has to call agree equally often"

    def _counts(self, message: Any) -> bool:
        return bool(message["time"] > self._since)

    def _at(self, rank: int) -> str:
        return f"/at/{rank}"


def _stop_of(message: Any) -> Stopped:
    return Stopped(message["rank"], message["reason"])


def _about_text(about: str) -> str:
    return f" ({about})" if about else ""
