"""A meeting of all ranks of a job: each votes, the first rank decides, all read the decision.

Every rank ends a meeting the same way: with the decision, or with `Stopped`, which names a rank and its reason. This
holds even if a rank dies, hangs, or never arrives: the first rank stops the meeting at its deadline. If the first rank
does not answer, all others name it as the cause.

Names in the store contain the token of the first rank's process, and it only reads answers to that token. So a job that
was restarted with the same store reads nothing of the previous one.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from gearcache.ranks import seat as seats
from gearcache.ranks.arrival import Arrival
from gearcache.ranks.job import Place
from gearcache.ranks.rounds import Decide, Rounds
from gearcache.ranks.seat import Seat
from gearcache.ranks.stopped import Stopped

#: Seconds that a rank reserves for reporting why it waits in vain.
_TO_TELL = 2.0


class Meeting:
    """One rank's part in a meeting. Its methods raise `Stopped`."""

    def __init__(self, place: Place, rank: int, world: int, timeout: float) -> None:
        self.rank = rank
        self._seat = Seat(place, rank, world, timeout)
        self._arrival = Arrival(self._seat)
        self._rounds = Rounds(self._seat)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; 0 when it has passed."""
        return self._seat.seconds_left

    @property
    def patience(self) -> float:
        """Seconds for which this rank may wait for locks; it can still report them before the first rank decides."""
        seconds = max(0.0, self.seconds_left - (0.0 if self._seat.is_first else self._seat.grace))
        return seconds - min(_TO_TELL, seconds / 10)

    @property
    def identity(self) -> str:
        """A text that identifies this meeting, available after all ranks have arrived."""
        return self._seat.tokens[0]

    def open(self, about: str = "") -> None:
        """Wait until all ranks have arrived; `about` names what this rank agrees on."""
        self._seat.words.about = about
        self._seat.run(self._arrival.come)

    def decide(self, vote: Any, decide: Decide) -> dict[str, Any]:
        """Vote, and return the decision of the first rank, which receives all votes in the order of the ranks.

        A decision `{"do": "stop", "rank": …, "reason": …}` ends the meeting: `Stopped` on every rank.
        """
        self._rounds.begin()
        decision: dict[str, Any] = self._seat.run(lambda: self._rounds.vote(vote, decide))
        if decision["do"] == "stop":
            raise Stopped(decision["rank"], decision["reason"])
        return decision

    def tell(self, what: str, value: Any) -> None:
        """Send a value (JSON) to the other ranks before the next decision."""
        self._seat.run(lambda: self._rounds.tell(what, value))

    def ask(self, what: str, rank: int, purpose: str) -> Any:
        """Return a value from another rank; None if it cannot be expected any more.

        `purpose` completes the sentence "waits for rank 3, which …".
        """
        return self._seat.run(lambda: self._rounds.hear(what, rank, purpose))

    def begin_work(self, doing: str) -> None:
        """Report to the others what this rank is working on."""
        self._seat.run(lambda: self._seat.line.tell(f"works/{self._seat.token}", doing))

    def leave(self, reason: str) -> None:
        """Report that this rank takes no part any more, also to ranks that have not arrived yet."""

        def report() -> None:
            stop = Stopped(self.rank, reason)
            self._seat.leave(stop)
            if not self._arrival.is_complete:
                self._arrival.give_up(stop)
            elif self._seat.is_first:
                self._rounds.give_up(reason)

        with suppress(Exception):
            end = time.monotonic() + seats.LEAVE
            self._seat.line.run(report, lambda: end)

    def close(self) -> None:
        """End the meeting on this rank."""
        self._seat.line.close()
