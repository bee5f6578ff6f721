"""A meeting of all ranks of a job: each votes, the first rank decides, all read the decision.

Every rank ends a meeting the same way: with the decision, or with `Stopped`, which names a rank and its reason. This
holds even if a rank dies, hangs, or never arrives: the first rank stops the meeting at its deadline. If the first rank
does not answer, all others name it as the cause.

Names in the store contain the token of the first rank's process, and it only reads answers to that token. So a job that
was restarted with the same store reads nothing of the previous one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gearcache.ranks import seat as seats
from gearcache.ranks.arrival import Arrival
from gearcache.ranks.job import Place
from gearcache.ranks.line import TooLate
from gearcache.ranks.messages import Stopped, silent
from gearcache.ranks.seat import Seat

#: Seconds that a rank reserves for reporting why it waits in vain.
_TO_TELL = 2.0
#: Decisions after which the meeting is over.
_ENDS = ("go", "stop")
_NOTHING = object()

Decide = Callable[[list[Any]], dict[str, Any]]


class Meeting:
    """One rank's part in a meeting. Its methods raise `Stopped`."""

    def __init__(self, place: Place, rank: int, world: int, timeout: float) -> None:
        self.rank = rank
        self._seat = Seat(place, rank, world, timeout)
        self._arrival = Arrival(self._seat)
        self._round = 0
        #: The last round that the first rank has decided, and whether it ended the meeting.
        self._decided, self._is_over = 0, False

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
        self._round += 1
        decision: dict[str, Any] = self._seat.run(
            lambda: self._collect_votes(vote, decide) if self._seat.is_first else self._await_decision(vote)
        )
        if decision["do"] == "stop":
            raise Stopped(decision["rank"], decision["reason"])
        return decision

    def tell(self, what: str, value: Any) -> None:
        """Send a value (JSON) to the other ranks before the next decision."""
        self._seat.run(lambda: self._seat.line.tell(self._name_of(what, self.rank), value))

    def ask(self, what: str, rank: int, purpose: str) -> Any:
        """Return a value from another rank; None if it cannot be expected any more.

        `purpose` completes the sentence "waits for rank 3, which …".
        """
        return self._seat.run(lambda: self._hear(what, rank, purpose))

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
                self._give_up(reason)

        with suppress(Exception):
            end = time.monotonic() + seats.LEAVE
            self._seat.line.run(report, lambda: end)

    def close(self) -> None:
        """End the meeting on this rank."""
        self._seat.line.close()

    # What follows runs in the thread of the line.

    def _hear(self, what: str, rank: int, purpose: str) -> Any:
        seat = self._seat
        seat.others_are.wait_for(rank, self._round)
        leaving, decision = f"left/{seat.tokens[rank]}", self._name_of("decision", next_round=True)

        def read_value() -> Any:
            message = seat.line.ask(self._name_of(what, rank))
            if message is None and (seat.line.has([leaving]) or seat.line.has([decision])):
                return _NOTHING
            return message

        try:
            value = seat.line.poll(read_value, lambda: seat.end, lambda: seat.say(f"rank {rank}, which {purpose}"))
        except TooLate:
            return None
        return None if value is _NOTHING else value

    def _give_up(self, reason: str) -> None:
        """End the meeting, as the first rank, for the others in whatever round they are."""
        if not self._is_over:
            self._round = self._decided + 1
            self._close_with(self._publish({"do": "stop", "rank": self._seat.rank, "reason": reason}))

    def _collect_votes(self, vote: Any, decide: Decide) -> dict[str, Any]:
        seat = self._seat

        def meanwhile(absent: list[int]) -> None:
            if absent:
                waiting = seat.others_are.named(seat.others_are.blamed(absent, self._round - 1))
                seat.line.tell(self._name_of("waits"), waiting)
                seat.say(seat.others_are.text(waiting))

        try:
            votes = seat.hear_all(
                {other: self._name_of("vote", other) for other in seat.others}, self._round - 1, meanwhile
            )
        except Stopped as stop:
            decision = self._publish({"do": "stop", "rank": stop.rank, "reason": stop.reason})
            return self._close_with(decision, absent=stop.rank)
        votes[seat.rank] = vote
        decision = decide([votes[rank] for rank in sorted(votes)])
        return self._close_with(self._publish(decision)) if decision["do"] in _ENDS else self._publish(decision)

    def _publish(self, decision: dict[str, Any]) -> dict[str, Any]:
        self._seat.line.tell(self._name_of("decision"), decision)
        self._decided = self._round
        return decision

    def _close_with(self, decision: dict[str, Any], *, absent: int | None = None) -> dict[str, Any]:
        """Stay until the ranks that are present have read the last decision."""
        self._is_over = True
        self._seat.linger([self._name_of("ended", other) for other in self._seat.others if other != absent])
        return decision

    def _await_decision(self, vote: Any) -> dict[str, Any]:
        seat, name = self._seat, self._name_of("decision")
        seat.line.tell(self._name_of("vote", seat.rank), vote)
        try:
            decision: dict[str, Any] = seat.line.poll(lambda: seat.line.ask(name), lambda: seat.end, self._log_waiting)
        except TooLate:
            stop = Stopped(0, silent(seat.timeout))
            seat.leave(stop)
            raise stop from None
        if decision["do"] in _ENDS:
            seat.line.tell(self._name_of("ended", seat.rank), True)
        return decision

    def _log_waiting(self) -> None:
        seat = self._seat
        if seat.others_are.is_time_to_look():
            # The first rank may not have seen this rank's vote yet.
            waiting = [report for report in seat.line.ask(self._name_of("waits")) or [] if report[0] != seat.rank]
            seat.say(seat.others_are.text(waiting) or "rank 0, which decides")

    def _name_of(self, what: str, rank: int = 0, *, next_round: bool = False) -> str:
        return f"{self._seat.tokens[0]}/{self._round + next_round}/{what}/{rank}"
