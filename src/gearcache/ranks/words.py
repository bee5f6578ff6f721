"""What a rank leaves in the store of its job for others that come later, or that miss it.

Nobody has answered to it, as others have to whatever is told in a meeting: it may be of an earlier start of the job
with the same store. So it carries the time, and counts where it is younger than the process that reads it. All ranks of
a start exist before one of them leaves a word: `init_process_group` waits for all. Where clocks of hosts differ, a word
may not count; then the deadline does.
"""

from __future__ import annotations

import time
from typing import Any

from gearcache.ranks.line import Line
from gearcache.ranks.stopped import Stopped

_OVER = "over"


class Words:
    """The words of one rank in one agreement."""

    def __init__(self, line: Line, number: int, rank: int, since: float) -> None:
        """`number` of the agreement; words that are older than `since` (seconds since the epoch) do not count."""
        self._line = line
        self._number = number
        self._rank = rank
        self._since = since
        #: What the agreement is about on this rank.
        self.about = ""

    def come(self) -> None:
        """Let others know at which agreement this rank is."""
        self._line.tell(self._at(self._rank), {"time": time.time(), "number": self._number, "about": self.about})

    def end(self, stop: Stopped) -> Stopped:
        """End the agreement for whoever has not been met yet; returns how it ended, where another was first."""
        word = {"time": time.time(), "rank": stop.rank, "reason": stop.reason, "how": stop.how}
        return _stop_of(self._line.settle(_OVER, word, self._counts))

    def ended(self) -> Stopped | None:
        """Return how the agreement has ended already; None where it has not."""
        word = self._line.ask(_OVER)
        return _stop_of(word) if word is not None and self._counts(word) else None

    def absence(self, rank: int) -> str:
        """Return where a rank is instead that has not come, as the end of a sentence."""
        here = f"this is agreement {self._number}{_named(self.about)}"
        word = self._line.ask(self._at(rank))
        if word is None or not self._counts(word):
            return f"; it has come to no agreement of this job yet, and {here}"
        if word["number"] == self._number:
            return f"; it was in agreement {self._number}{_named(self.about)}"
        last = f"agreement {word['number']}{_named(word['about'])}"
        return f"; it came last to {last}, and {here}: every rank has to call agree equally often"

    def _counts(self, word: Any) -> bool:
        return bool(word["time"] > self._since)

    def _at(self, rank: int) -> str:
        return f"/at/{rank}"


def _stop_of(word: Any) -> Stopped:
    return Stopped(word["rank"], word["reason"], word["how"])


def _named(about: str) -> str:
    return f" ({about})" if about else ""
