"""One rank's part in an agreement, from its methods to the outcome that all ranks share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from gearcache.errors import GearcacheError, OptionError, RanksDisagree
from gearcache.ranks.declared_calls import Piece, collect
from gearcache.ranks.job import Job
from gearcache.ranks.meeting import Meeting
from gearcache.ranks.messages import Stopped
from gearcache.ranks.model import Model
from gearcache.ranks.plan import Leader, vote_of
from gearcache.ranks.team import Team
from gearcache.serving.call.method import CachedMethod
from gearcache.threads import waits_end_after

logger = logging.getLogger("gearcache")
_MOST_NAMED = 3


class RankPart:
    """One rank's part in an agreement."""

    def __init__(self, job: Job, timeout: float, problem: OptionError | None) -> None:
        """`problem`: what is wrong with a parameter of this rank, which stops all ranks."""
        self.meeting = Meeting(job.next_meeting(), job.rank, job.world, timeout)
        self._process = os.getpid()
        self._model: Model | None = None
        self._team: Team | None = None
        self._leader = Leader()
        self._problem = problem
        #: The failure of this rank, and whether it has begun to work.
        self._error: Exception | None = problem
        self._has_begun = False

    def meet(self, model: Any, warm: Callable[[], object] | None) -> None:
        """Agree with the others; `Stopped` if that fails."""
        pieces: list[Piece] = []
        # Before this rank meets the others: none may compile alone if one of them does not arrive.
        failure = self._failure(lambda: self._begin(pieces, model, warm))
        self.meeting.open(_names_text(self._model.named if self._model is not None else []))
        if not failure:
            self._team = Team(pieces, self.meeting)
        while True:
            vote = None if failure else self._vote()
            if isinstance(vote, str):
                failure = vote
            if failure:
                vote = {"failed": failure}
            decision = self.meeting.decide(vote, self._leader.decide)
            team = self._team
            assert team is not None
            if decision["do"] == "go":
                break
            if decision["do"] == "compile":
                failure = self._failure(lambda: team.compile(decision["who"]))  # noqa: B023
            else:
                failure = self._failure(team.load)
        with suppress(Exception):  # all ranks continue: a failure must not end that now
            team.tell_what_is_left_out()

    def _begin(self, pieces: list[Piece], model: Any, warm: Callable[[], object] | None) -> None:
        self._model = Model(model)
        self._model.withdraw()  # from here on no method compiles alone, in any thread, even if this fails
        if self._problem is not None:
            raise self._problem
        pieces += collect(self._model.warmable, warm)
        self._model.add(piece.method for piece in pieces)
        self._model.withdraw()
        self._has_begun = True

    def _vote(self) -> dict[str, Any] | str:
        """Return the states of the pieces; a text is the reason why that failed."""
        assert self._team is not None
        try:
            with waits_end_after(self.meeting.patience):
                return vote_of(self._team.look_up())
        except Exception as error:
            self._error = error
            return told(error)

    def _failure(self, work: Callable[[], None]) -> str:
        """Do a part of the work; returns the failure for the next vote, in which every rank takes part."""
        try:
            with waits_end_after(self.meeting.patience):
                work()
        except Stopped:
            raise
        except Exception as error:
            self._error = error
            return told(error)
        return ""

    def end(self, stop: Stopped) -> NoReturn:
        """End without an agreement: all ranks raise the same, and one with a wrong parameter the error for it."""
        error = RanksDisagree(stop.rank, stop.reason)
        if not self._has_begun and isinstance(self._error, (OptionError, TypeError)):
            raise self._error from error
        raise error from (self._error or stop.__cause__)

    def close(self) -> None:
        """Leave the meeting."""
        if os.getpid() != self._process:  # a fork of this rank: the rank itself still takes part
            return
        self.meeting.close()
        if self._team is not None:
            self._team.close()


def told(error: BaseException) -> str:
    """Return the text of an error for the other ranks."""
    logger.debug("agree: this rank fails", exc_info=error)
    text = str(error)
    if isinstance(error, GearcacheError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _names_text(methods: list[CachedMethod]) -> str:
    names = list(dict.fromkeys(f"`{method.name}`" for method in methods))
    others = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {others} others" if others > 0 else "")
