"""The rounds of a meeting: all ranks vote, the first rank decides, all read the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gearcache.ranks.line import TooLate
from gearcache.ranks.seat import Seat
from gearcache.ranks.stopped import Stopped, silent

#: Decisions after which the meeting is over.
ENDS = ("go", "stop")

Decide = Callable[[list[Any]], dict[str, Any]]


class Rounds:
    """The rounds of one rank. Except for `begin`, it runs in the thread of the line and raises `Stopped`."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._round = 0
        #: The last round that the first rank has decided, and whether it ended the meeting.
        self._decided, self._is_over = 0, False

    def begin(self) -> None:
        """Begin the next round."""
        self._round += 1

    def vote(self, vote: Any, decide: Decide) -> dict[str, Any]:
        """Return the decision of this round."""
        return self._collect_votes(vote, decide) if self._seat.is_first else self._await_decision(vote)

    def tell(self, what: str, value: Any) -> None:
        """Send a value (JSON) to the other ranks before the next decision."""
        self._seat.line.tell(self._name_of(what, self._seat.rank), value)

    def hear(self, what: str, rank: int, purpose: str) -> Any:
        """Return a value from another rank; None if it cannot be expected any more."""
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

    def give_up(self, reason: str) -> None:
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
        return self._close_with(self._publish(decision)) if decision["do"] in ENDS else self._publish(decision)

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
        if decision["do"] in ENDS:
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


_NOTHING = object()
