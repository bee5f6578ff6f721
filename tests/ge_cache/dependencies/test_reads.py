"""What a trace reads of a tensor, of an object's identity, or of a function beside values is compared on every call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.relaunch import Outcome, cold_and_warm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    root: Path = tmp_path_factory.mktemp("reads")
    return cold_and_warm("tests.scenarios.reads", root)


def test_everything_that_is_read_of_a_tensor_is_compared(outcome: Outcome) -> None:
    outcome.assert_right("everything_read_of_a_tensor_is_compared")


def test_one_object_or_two_is_seen_where_it_matters(outcome: Outcome) -> None:
    outcome.assert_right("one_object_or_two_is_seen")


def test_a_callable_is_never_taken_for_another_one(outcome: Outcome) -> None:
    outcome.assert_right("callables_are_told_apart")
