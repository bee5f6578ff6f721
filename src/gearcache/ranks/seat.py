"""The state of one rank in a meeting: its line to the store, its deadline, and the tokens of ranks that it has met."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gearcache.ranks.job import Place
from gearcache.ranks.line import Line, StoreGone, TooLate
from gearcache.ranks.messages import GONE, Stopped, Words
from gearcache.ranks.whereabouts import Whereabouts

#: Seconds that other ranks wait after the deadline of the first rank, which decides at its own.
GRACE = 2.0
#: Seconds for which a rank tries to report that it leaves: how long an interrupt may wait for a busy host.
LEAVE = 5.0


class Seat:
    """One rank's seat in a meeting."""

    def __init__(self, place: Place, rank: int, world: int, timeout: float) -> None:
        self.rank = rank
        self.others = [other for other in range(world) if other != rank]
        self.timeout = timeout
        #: The deadline, of `time.monotonic`.
        self.end = time.monotonic() + timeout
        self.grace = GRACE
        self.line = Line(place.open, f"{place.number}/")
        self.words = Words(self.line, place.number, rank, place.since)
        self.token = secrets.token_hex(8)
        self.tokens: dict[int, str] = {rank: self.token}
        self.others_are = Whereabouts(self.line, rank, self.tokens)

    @property
    def is_first(self) -> bool:
        """Whether this rank decides."""
        return self.rank == 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; 0 when it has passed."""
        return max(0.0, self.end - time.monotonic())

    def run(self, work: Callable[[], Any]) -> Any:
        """Return the result of work that uses the store, run in the line's thread; `Stopped` if the store is gone."""
        try:
            return self.line.run(work, lambda: self.end + 2 * self.grace)
        except StoreGone as error:
            raise Stopped(0, GONE) from error

    # What follows runs in the thread of the line.

    def say(self, whom: str) -> None:
        """Log now and then which rank this one waits for."""
        self.others_are.say(whom, self.seconds_left)

    def linger(self, names: Sequence[str]) -> None:
        """Wait a little until names are stored: the store may end with this process."""
        end = time.monotonic() + self.grace / 2
        with suppress(TooLate):
            self.line.poll(lambda: True if self.line.has(names) else None, lambda: end)

    def hear_all(self, names: dict[int, str], round_: int, meanwhile: Callable[[list[int]], None]) -> dict[int, Any]:
        """Return the values of names by rank; `Stopped` if one never arrives, or if a rank says that it leaves.

        `meanwhile` is called now and then with the ranks whose values are missing; `round_` is the last round in which
        ranks waited for each other.
        """

        def missing() -> list[int]:
            return [other for other, name in names.items() if not self.line.has([name])]

        def look_around() -> None:
            if self.others_are.is_time_to_look():
                self._look_for_leavers()
                meanwhile(missing())

        ordered_names = list(names.values())
        try:
            self.line.poll(lambda: True if self.line.has(ordered_names) else None, lambda: self.end, look_around)
        except TooLate:
            self._look_for_leavers()  # this process may have been suspended
            if late := missing():  # else the last answer has come meanwhile
                cause = self.others_are.blamed(late, round_)[0]
                activity = self.others_are.was_at(cause) if cause in self.tokens else self.words.absence(cause)
                raise Stopped(cause, f"it did not answer within {self.timeout:g} s{activity}") from None
        return dict(zip(names, self.line.read(ordered_names), strict=True))

    def leave(self, stop: Stopped) -> None:
        """Report to the ranks that this one has met that it takes no part any more, and why."""
        self.line.tell(f"left/{self.token}", [stop.rank, stop.reason])

    def _look_for_leavers(self) -> None:
        for other in self.others:  # including those that have voted
            token = self.tokens.get(other)
            if token is not None and (message := self.line.ask(f"left/{token}")) is not None:
                raise Stopped(*message)
