"""The `inductor` backend from end to end."""

from __future__ import annotations

import gc
import os
import re
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.ge_cache.inductor import backend
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


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def run(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * self.weight


def served() -> Any:
    net = Net()
    config = gearcache.CompilerConfig(backend="inductor", strict=True, on_miss="pad", pad_values={"x": 0.0})
    cached = gearcache.cache_compile(net.run, config=config, gears={"x": {0: [2, 4]}})
    with torch.no_grad():
        for rows in (2, 3, 4):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(cached(x), net.run(x))
    return cached


@pytest.mark.usefixtures("compiled_here")
def test_code_is_recognised_by_its_content_and_a_package_has_no_padded_sizes(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = served()
    gearcache.export(cached, tmp_path / "package")
    package = torch.load(tmp_path / "package", weights_only=False)
    assert [gear["text"] for gear in package["gears"]] == ["x.size(0)=2", "x.size(0)=4"]
    del cached
    gc.collect()
    # As where the server of a network file system gives the inode of a removed file to another one.
    identity = types.SimpleNamespace(st_dev=1, st_ino=1)
    monkeypatch.setattr(backend, "os", types.SimpleNamespace(**{**vars(os), "stat": lambda name: identity}))
    monkeypatch.setattr(backend, "_loaded", {})
    for _ in range(2):
        stats = served().stats
        assert (stats.compiles, stats.hits, stats.faults) == (0, 1, 0)
        gc.collect()
