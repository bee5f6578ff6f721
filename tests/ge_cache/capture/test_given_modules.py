"""A module among the arguments is the one that was passed, with its own weights, cold and relaunched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.relaunch import Outcome, cold_and_warm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    root: Path = tmp_path_factory.mktemp("given_modules")
    return cold_and_warm("tests.scenarios.given_modules", root)


def test_another_module_of_the_class_is_answered_with_its_own_weights(outcome: Outcome) -> None:
    outcome.assert_right("modules_alone")


def test_a_hook_of_a_module_that_is_passed_counts(outcome: Outcome) -> None:
    outcome.assert_right("a_module_with_a_hook")


def test_modules_in_containers_are_the_ones_passed(outcome: Outcome) -> None:
    outcome.assert_right("modules_in_containers")


def test_a_module_that_the_method_holds_itself_may_be_passed_as_well(outcome: Outcome) -> None:
    outcome.assert_right("modules_that_it_holds")
