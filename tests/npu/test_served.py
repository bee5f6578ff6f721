"""Cold and relaunched equal to eager on the emulated NPU.

Methods that are cached here; then programs that were written for torchair, after `install()` alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gearcache.compat import torchair as compat
from tests.npu.relaunch import cold_and_warm
from tests.support.scenarios import scenario_names

MODULES = ("tests.npu.served", "tests.npu.call_sites")
NAMES = [name for module in MODULES for name in scenario_names(module)]
#: Those that keep GE's files, and how many graphs they have.
KEEPING = {"a_llama_decodes_in_float16_with_ges_own_cache": 2, "cann_recipes_keep_ges_files": 1}


def test_cold_and_relaunched_equal_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """One test: each process that has one of several would compile all."""
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path))  # each scenario sets it
    try:
        outcome = cold_and_warm(MODULES, tmp_path)
    finally:
        compat.uninstall()
    for name in NAMES:
        with subtests.test(name):
            outcome.assert_right(name)
            cold, warm = outcome.cold[name]["ge"], outcome.warm[name]["ge"]
            if name in KEEPING:
                assert cold == {"load": KEEPING[name], "compile": KEEPING[name], "cached": 0}
                assert warm == {"load": KEEPING[name], "compile": 0, "cached": KEEPING[name]}
            else:
                assert (warm["cached"], warm["compile"]) == (0, warm["load"]), "GE compiles again in each process"
    with subtests.test("a method per batch size is compiled once, and found after a reset"):
        stats = outcome.cold["vllm_ascend_has_a_method_per_batch_size"]["stats"]
        assert [(item["traces"], item["hits"]) for item in stats] == [(1, 0), (1, 0), (0, 1), (0, 1)]
    with subtests.test("one graph serves all gears when GE switches"):
        assert outcome.warm["ge_switches_between_the_gears"]["ge"]["load"] == 1
    with subtests.test("NPU graphs are captured once per gear"):
        name = "npu_graphs_are_captured_once_per_gear_and_process"
        # Caches are replaced between the calls, so their gears are captured again: three decodes, two gears of the MLP.
        assert outcome.cold[name]["captures"] == outcome.warm[name]["captures"] == 5
