"""The `inductor` backend from end to end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gearcache
from tests.scenarios.repeated import LAYERS
from tests.support.relaunch import each_cold_and_warm, order

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("compiled_here")
def test_compiled_scenarios_are_right_cold_and_relaunched(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """One test: each process that has one of several would compile all."""
    orders = [
        order(f"tests.scenarios.{name}", tmp_path, backend="inductor", tolerance=1e-5)
        for name in ("compiled", "repeated")
    ]
    outcome, repeated = each_cold_and_warm(orders)
    for scenario in outcome.cold:
        with subtests.test(scenario):
            outcome.assert_right(scenario, traces=1)
    with subtests.test("equal layers are compiled once, and a reader is shown one"):
        repeated.assert_right("stacks")
        texts = (gearcache.readable_cache(path, print_output=False) for path in tmp_path.rglob("manifest*"))
        (text,) = (text for text in texts if "compiled once" in text)
        runs = [int(times) for times in re.findall(r"operations compiled once, run (\d+) times", text)]
        assert runs == [LAYERS, 2 * LAYERS]
        assert text.count("= aten::gelu") == 1
        assert re.search(rf"… × {LAYERS}: %\d+ to %\d+ do what these \d+ operations do", text)
