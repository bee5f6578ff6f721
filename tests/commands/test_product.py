"""Commands on what the product itself stored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.commands import run, run_json
from tests.test_events import Net, cached


@pytest.fixture
def served(cache_dir: Path) -> Net:
    """A model whose entry was compiled, and loaded twice by later processes, as it seems."""
    net = Net()
    cached(net)(torch.randn(2, 4))
    for _ in range(2):
        cached(net)(torch.randn(2, 4))
    return net


def test_stats_count_the_misses_and_hits_of_processes(served: Net) -> None:
    found = run_json("stats")
    assert (found["entries"], found["gears"], found["hits"]) == (1, 2, 2)
    assert found["misses_by_reason"] == {"absent": 1}
    served.factor = 5
    cached(served)(torch.randn(2, 4))
    assert run_json("stats")["misses_by_reason"] == {"absent": 1, "evidence": 1}


def test_show_has_every_part_in_short_in_full_alone_and_as_json(served: Net) -> None:
    text = run("show", "Net.decode").stdout
    for part in (
        "Compiled  2 gears in ",
        "method.name = 'tests.test_events:Net.decode'",
        "x: float32 on cpu",
        "self.linear.weight: bound when it is loaded",
        "x.size(0)=4: x[4, 4]; compiled in",
        "checks at each load; --only evidence lists them",
    ):
        assert part in text, part
    assert "LOAD_" not in text
    full = run("show", "Net.decode", "--full").stdout
    for part in ("self.factor: constant 2", "LOAD_FAST", "aten::linear.default(", "Graph of x.size(0)=2, x.size(0)=4"):
        assert part in full, part
    alone = run("show", "Net.decode", "--only", "evidence").stdout
    assert "self.factor: constant 2" in alone
    assert "more lines" not in alone
    assert "Gears" not in alone
    found = run_json("show", "Net.decode")
    (variant,) = found["variant_details"]
    assert set(variant) == {"inputs", "checks", "evidence", "sources", "gears", "frame", "graph"}
    assert found["components"]["method"]["name"] == "tests.test_events:Net.decode"
    assert "self.factor: constant 2" in variant["evidence"]
    assert variant["graph"][0]["title"] == "Graph of x.size(0)=2, x.size(0)=4"
