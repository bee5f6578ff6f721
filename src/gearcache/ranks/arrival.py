"""Gathers the ranks of a job at the start of a meeting; a rank that gives up leaves a message for late ranks."""

from __future__ import annotations

import time
from typing import Any

from gearcache.ranks.line import TooLate
from gearcache.ranks.messages import Stopped, silent
from gearcache.ranks.seat import Seat


class Arrival:
    """The arrival of one rank. It runs in the thread of the line, and raises `Stopped`."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        #: Whether all ranks have arrived, as far as this rank knows.
        self.is_complete = False

    def come(self) -> None:
        """Wait until all ranks have arrived."""
        self._seat.words.come()
        if self._seat.is_first:
            self._gather()
        else:
            self._join()
        self.is_complete = True

    def give_up(self, stop: Stopped) -> Stopped:
        """End an incomplete meeting; returns its outcome, which another rank may have set before."""
        seat = self._seat
        stop = seat.words.end(stop)
        if seat.is_first:
            present = [other for other in seat.others if seat.line.has([self._arrival_name(other)])]
            for other in present:
                token = seat.line.ask(self._arrival_name(other))
                seat.line.tell(f"seen/{token}", {"stop": [stop.rank, stop.reason]})
            seat.linger([f"ended/{seat.token}/{other}" for other in present])
        return stop

    def _arrival_name(self, rank: int) -> str:
        return f"here/{self._seat.token}/{rank}"

    def _gather(self) -> None:
        seat = self._seat

        def meanwhile(absent: list[int]) -> None:
            if (stop := seat.words.ended()) is not None:
                raise stop
            if absent:
                seat.say(seat.others_are.text(seat.others_are.named(absent)))

        seat.line.tell("call", [seat.token, seat.seconds_left])
        try:
            seat.tokens |= seat.hear_all({other: self._arrival_name(other) for other in seat.others}, -1, meanwhile)
        except Stopped as stop:
            raise self.give_up(stop) from None
        arrival = {"left": seat.seconds_left, "tokens": [seat.tokens[rank] for rank in sorted(seat.tokens)]}
        for other in seat.others:
            seat.line.tell(f"seen/{seat.tokens[other]}", arrival)

    def _join(self) -> None:
        seat, answered_call = self._seat, ""

        def read_arrival() -> Any:
            nonlocal answered_call
            call, seconds = seat.line.ask("call") or ("", 0.0)
            if call and call != answered_call:  # the call may be of an earlier start; then another one follows
                answered_call = call
                seat.line.tell(f"here/{call}/{seat.rank}", seat.token)
                # This rank waits longer, so that the first rank reports an absent rank first.
                seat.end = max(seat.end, time.monotonic() + seconds + seat.grace)
            if (arrival := seat.line.ask(f"seen/{seat.token}")) is not None:
                return arrival
            stop = seat.words.ended()
            return None if stop is None else {"stop": [stop.rank, stop.reason]}

        try:
            arrival = seat.line.poll(read_arrival, lambda: seat.end, lambda: seat.say("rank 0, which gathers all"))
        except TooLate:
            reason = f"{silent(seat.timeout)}{seat.words.absence(0)}; rank {seat.rank} gave up"
            raise seat.words.end(Stopped(0, reason)) from None
        if "stop" in arrival:
            seat.line.tell(f"ended/{answered_call}/{seat.rank}", True)
            raise Stopped(*arrival["stop"])
        seat.tokens.update(enumerate(arrival["tokens"]))
        seat.end = time.monotonic() + arrival["left"] + seat.grace
