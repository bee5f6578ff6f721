"""Finds out where the other ranks of a job are, for the log lines of a waiting rank and for errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gearcache.ranks.line import Line

logger = logging.getLogger("gearcache")
#: Seconds until a rank logs which rank it waits for, and between two looks at the others.
_SAYS_AFTER, _LOOKS_AFTER = 10.0, 0.2
_MOST_NAMED = 4


class Whereabouts:
    """What one rank knows of the others. `tokens` are those of the ranks that have arrived."""

    def __init__(self, line: Line, rank: int, tokens: Mapping[int, str]) -> None:
        self._line = line
        self._rank = rank
        self._tokens = tokens
        self._last_log = time.monotonic()
        self._last_look = 0.0

    def is_time_to_look(self) -> bool:
        """Whether the last look was a while ago."""
        now = time.monotonic()
        if now - self._last_look < _LOOKS_AFTER:
            return False
        self._last_look = now
        return True

    def say(self, whom: str, seconds_left: float) -> None:
        """Log now and then which rank this one waits for."""
        if time.monotonic() - self._last_log >= _SAYS_AFTER:
            self._last_log = time.monotonic()
            logger.warning("gearcache.agree: rank %d waits for %s (%.0f s left)", self._rank, whom, seconds_left)

    def was_at(self, rank: int) -> str:
        """Return what a rank last reported to be doing, as the end of a sentence."""
        token = self._tokens.get(rank)
        work = self._line.ask(f"works/{token}") if token else None
        return f", which was to {work}" if work else ""

    def named(self, ranks: list[int]) -> list[tuple[int, str]]:
        """Return the first of some ranks with what they do, and the number of the others (as rank -1)."""
        reports = [(rank, f"rank {rank}{self.was_at(rank)}") for rank in ranks[:_MOST_NAMED]]
        return [*reports, (-1, f"{len(ranks) - _MOST_NAMED} others")] if len(ranks) > _MOST_NAMED else reports

    @staticmethod
    def text(reports: Sequence[Sequence[Any]]) -> str:
        """Return ranks, as `named` returns them, in one text."""
        return "; ".join(str(text) for _, text in reports)

    def wait_for(self, rank: int, number: int) -> None:
        """Report that this rank waits for another one in a round."""
        self._line.tell(f"{self._tokens[0]}/waits/{self._rank}", [number, rank])

    def blamed(self, absent: list[int], number: int) -> list[int]:
        """Return the absent ranks that did not wait for another absent one in a round; all of them if none remain."""
        waits = {other: self._line.ask(f"{self._tokens[0]}/waits/{other}") for other in absent}
        return [other for other in absent if waits[other] not in [[number, rank] for rank in absent]] or absent
