"""Each mechanism that `python -m benchmarks.fuzz put-back` takes away is where the list says."""

from __future__ import annotations

import os
import traceback

import pytest

from benchmarks.fuzz.put_back import BUGS, _in_place, put_back


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("name", BUGS)
def test_a_mechanism_can_be_taken_away(name: str) -> None:
    child = os.fork()
    if child == 0:  # for the rest of a process
        code = 1
        try:
            put_back(name)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_mechanism_that_has_moved_is_named() -> None:
    with pytest.raises(AttributeError, match=r"`gearcache.guards.keys` has no `unknown`"):
        _in_place("guards.keys", "unknown", None)
