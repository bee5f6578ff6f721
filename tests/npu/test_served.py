"""Cold and relaunched equal to eager on the emulated NPU."""

from __future__ import annotations

import pytest

from tests.npu.relaunch import cold_and_warm
from tests.support.relaunch import Outcome
from tests.support.scenarios import scenario_names

MODULE = "tests.npu.served"
NAMES = scenario_names(MODULE)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return cold_and_warm(MODULE, tmp_path_factory.mktemp("npu"))


@pytest.mark.parametrize("name", NAMES)
def test_cold_and_relaunched_equal_eager(outcome: Outcome, name: str) -> None:
    outcome.assert_right(name)


@pytest.mark.parametrize("name", [name for name in NAMES if "own_cache" not in name])
def test_without_ge_cache_ge_compiles_again_in_each_process(outcome: Outcome, name: str) -> None:
    ge = outcome.warm[name]["ge"]
    assert ge["cached"] == 0
    assert ge["compile"] == ge["load"]


def test_with_ge_cache_a_relaunch_compiles_nothing(outcome: Outcome) -> None:
    name = "a_llama_decodes_in_float16_with_ges_own_cache"
    assert outcome.cold[name]["ge"] == {"load": 2, "compile": 2, "cached": 0}
    assert outcome.warm[name]["ge"] == {"load": 2, "compile": 0, "cached": 2}


def test_one_graph_serves_all_gears_when_ge_switches(outcome: Outcome) -> None:
    assert outcome.warm["ge_switches_between_the_gears"]["ge"]["load"] == 1


def test_npu_graphs_are_captured_once_per_gear(outcome: Outcome) -> None:
    name = "npu_graphs_are_captured_once_per_gear_and_process"
    # Caches are replaced between the calls, so their gears are captured again: three decodes, two gears of the MLP.
    assert outcome.cold[name]["captures"] == outcome.warm[name]["captures"] == 5
