"""The `inductor` backend from end to end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._dynamo.decorators import mark_unbacked

import gearcache
from tests.scenarios.shapes import Net
from tests.support.relaunch import cold_and_warm
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


#: Scenarios of `tests.scenarios.compiled`, and their traces.
TRACES = {
    "gears": None,
    "scalars": 1,
    # The layer asks for grad mode: its trace is made in both.
    "operators_without_a_c_interface": 2,
}


@pytest.mark.usefixtures("compiled_here")
def test_compiled_scenarios_are_right_cold_and_relaunched(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """One test: each process that has one of several would compile all."""
    outcome = cold_and_warm("tests.scenarios.compiled", tmp_path, backend="inductor", tolerance=1e-5)
    assert outcome.cold.keys() == TRACES.keys()
    for scenario, traces in TRACES.items():
        with subtests.test(scenario):
            outcome.assert_right(scenario, traces=traces)


@pytest.mark.usefixtures("compiled_here")
def test_shape_controls_hold_for_compiled_graphs(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.scaled, config=strict_config("inductor"), dynamic=False)
    for size in (3, 7):
        x = torch.randn(size, 4)
        mark_unbacked(x, 0, max=8)
        with torch.no_grad():
            assert torch.allclose(cached(x), net.scaled(x), atol=1e-5)
    assert cached.stats.gears == {"dynamic": 2}
