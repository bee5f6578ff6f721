"""Each mechanism that `python -m benchmarks.fuzz put-back` takes away is where the list says."""

from __future__ import annotations

import pytest

from benchmarks.fuzz.put_back import BUGS, _in_place, put_back
from tests.support.forks import run_in_fork


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_each_mechanism_can_be_taken_away() -> None:
    for name in BUGS:
        assert run_in_fork(lambda name=name: put_back(name)) == 0, name  # for the rest of a process


def test_a_mechanism_that_has_moved_is_named() -> None:
    with pytest.raises(AttributeError, match=r"`gearcache.guards.keys` has no `unknown`"):
        _in_place("guards.keys", "unknown", None)
