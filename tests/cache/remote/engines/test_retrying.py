"""The one retry policy of tiers: what is tried again, how often, and when no more."""

from __future__ import annotations

import time

import pytest

from gearcache.cache.remote.engines.protocol import Deadline, RemoteError
from gearcache.cache.remote.engines.retrying import tried


class Failing:
    """Work that fails some times, with an error, and then gives its number."""

    def __init__(self, times: int, error: Exception, seconds: float = 0.0) -> None:
        self.calls = 0
        self._times, self._error, self._seconds = times, error, seconds

    def __call__(self) -> int:
        self.calls += 1
        time.sleep(self._seconds)
        if self.calls <= self._times:
            raise self._error
        return self.calls


def test_what_fails_for_a_moment_is_tried_again_and_the_last_error_comes_out() -> None:
    assert tried(Failing(2, RemoteError("tier", "gone")), (0.0, 0.0), deadline=Deadline.after(9)) == 3
    work = Failing(9, RemoteError("tier", "gone"))
    with pytest.raises(RemoteError, match="gone"):
        tried(work, (0.0, 0.0), deadline=Deadline.after(9))
    assert work.calls == 3


def test_nothing_is_tried_beyond_the_deadline() -> None:
    work = Failing(9, RemoteError("tier", "gone"))
    with pytest.raises(RemoteError):
        tried(work, (60.0,), deadline=Deadline.after(0.2))
    assert work.calls == 1
