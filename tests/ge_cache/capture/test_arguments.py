"""Every kind of argument that Dynamo takes, in the process that compiled and in a relaunched one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.relaunch import Outcome, cold_and_warm


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    root: Path = tmp_path_factory.mktemp("arguments")
    return cold_and_warm("tests.scenarios.arguments", root)


def test_positional_keyword_and_default_arguments_meet_the_same_graph(outcome: Outcome) -> None:
    outcome.assert_right("positional_keyword_and_default", traces=3)


def test_every_count_of_star_arguments_is_a_variant(outcome: Outcome) -> None:
    outcome.assert_right("star_arguments", traces=5)


def test_every_scalar_value_but_ints_is_a_variant_and_none_replaces_another(outcome: Outcome) -> None:
    outcome.assert_right("scalars_are_variants", traces=9)


def test_tensors_are_found_in_lists_tuples_and_dicts(outcome: Outcome) -> None:
    outcome.assert_right("lists_tuples_and_dicts")


def test_tensors_are_found_in_dataclasses_objects_and_namedtuples(outcome: Outcome) -> None:
    outcome.assert_right("dataclasses_objects_and_namedtuples", traces=4)


def test_a_cache_in_argument_lists_is_written_in_place_and_follows_the_batch(outcome: Outcome) -> None:
    outcome.assert_right("key_value_cache_in_lists")
