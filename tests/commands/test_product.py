"""Commands on what the product itself stored."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.support.commands import run, run_json
from tests.test_events import Net, cached


def test_show_has_every_part_in_short_in_full_alone_and_as_json(cache_dir: Path) -> None:
    cached(Net())(torch.randn(2, 4))
    text = run("show", "Net.decode").stdout
    for part in (
        "Compiled  2 graphs in ",
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
