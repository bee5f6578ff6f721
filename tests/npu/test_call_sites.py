"""Programs of torchair's users are served cold, and relaunched without a trace, after `install()` alone."""

from __future__ import annotations

import pytest

from gearcache.compat import torchair as compat
from tests.npu.relaunch import cold_and_warm
from tests.support.relaunch import Outcome
from tests.support.scenarios import scenario_names

MODULE = "tests.npu.call_sites"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    try:
        return cold_and_warm(MODULE, tmp_path_factory.mktemp("call_sites"))
    finally:
        compat.uninstall()


@pytest.mark.parametrize("name", scenario_names(MODULE))
def test_a_program_written_for_torchair_runs_unchanged(outcome: Outcome, name: str) -> None:
    outcome.assert_right(name)


def test_a_method_per_batch_size_is_compiled_once_and_found_after_a_reset(outcome: Outcome) -> None:
    stats = outcome.cold["vllm_ascend_has_a_method_per_batch_size"]["stats"]
    assert [(item["traces"], item["hits"]) for item in stats] == [(1, 0), (1, 0), (0, 1), (0, 1)]


def test_with_ge_cache_a_relaunch_compiles_nothing(outcome: Outcome) -> None:
    name = "cann_recipes_keep_ges_files"
    assert outcome.cold[name]["ge"] == {"load": 1, "compile": 1, "cached": 0}
    assert outcome.warm[name]["ge"] == {"load": 1, "compile": 0, "cached": 1}
