"""A meeting of all ranks of a job: each votes, the first of them decides, all read what it decided.

Every rank ends a meeting the same way: with the decision, or with `Stopped`, which names a rank and its reason. That
holds too where a rank dies, hangs, or never comes: the first rank decides so at its deadline, and where it is the first
rank that does not answer, all others say that of it.

Names in the store carry the token of the first rank's process, and what it reads was told in answer to that. A job that
was started anew with the same store therefore reads nothing of the one before.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gearcache.ranks import seat as seats
from gearcache.ranks.arrival import Arrival
from gearcache.ranks.job import Place
from gearcache.ranks.rounds import Decide, Rounds
from gearcache.ranks.seat import Seat
from gearcache.ranks.stopped import Stopped

#: Seconds between two signs of a rank that is at work.
_BEATS_AFTER = 2.0
#: Seconds that a rank keeps for telling the others why it waits in vain.
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
        """Seconds for which this rank may wait for locks: so few that it can tell of them before the first decides."""
        left = max(0.0, self.seconds_left - (0.0 if self._seat.is_first else self._seat.grace))
        return left - min(_TO_TELL, left / 10)

    @property
    def identity(self) -> str:
        """What tells this meeting from all others, known once all ranks have come."""
        return self._seat.tokens[0]

    def open(self, about: str = "") -> None:
        """Wait until all ranks have come; `about` says what this one agrees on."""
        self._seat.words.about = about
        self._seat.run(self._arrival.come)

    def decide(self, vote: Any, decide: Decide) -> dict[str, Any]:
        """Vote, and return what the first rank decides when it has all votes, in the order of the ranks.

        A decision `{"do": "stop", "rank": …, "reason": …}` ends the meeting: `Stopped` on every rank.
        """
        self._rounds.begin()
        found: dict[str, Any] = self._seat.run(lambda: self._rounds.vote(vote, decide))
        if found["do"] == "stop":
            raise Stopped(found["rank"], found["reason"], found.get("how", ""))
        return found

    def tell(self, what: str, value: Any) -> None:
        """Let the other ranks know a value (JSON) before the next decision."""
        self._seat.run(lambda: self._rounds.tell(what, value))

    def ask(self, what: str, rank: int, purpose: str) -> Any:
        """Return what another rank tells; None where that is not to be hoped for any more.

        `purpose` completes the sentence "waits for rank 3, which …".
        """
        return self._seat.run(lambda: self._rounds.hear(what, rank, purpose))

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Let the others know, while the block runs, that this rank is at work, and at what."""
        over, seat = threading.Event(), self._seat

        def beat() -> None:
            with suppress(Exception):  # whoever waits for this rank will tell what is wrong
                while True:
                    seat.line.tell(f"beat/{seat.token}", [doing, secrets.token_hex(4)])
                    if over.wait(_BEATS_AFTER):
                        return

        thread = threading.Thread(target=beat, name="gearcache beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def leave(self, reason: str) -> None:
        """Let the others know that this rank does not take part any more, also those that have not come yet."""

        def say() -> None:
            stop = Stopped(self.rank, reason)
            self._seat.leave(stop)
            if not self._arrival.is_complete:
                self._arrival.give_up(stop)
            elif self._seat.is_first:
                self._rounds.give_up(reason)

        with suppress(Exception):
            end = time.monotonic() + seats.LEAVE
            self._seat.line.run(say, lambda: end)

    def close(self) -> None:
        """End the meeting on this rank."""
        self._seat.line.close()
