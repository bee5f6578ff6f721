"""Every kind of result and side effect, in the process that compiled and in a relaunched one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import CaptureError
from tests.scenarios import results
from tests.support.scenarios import strict_config


def test_a_changed_global_constant_is_seen_by_the_next_call(cache_dir: object, monkeypatch: pytest.MonkeyPatch) -> None:
    net = results.Net()
    cached = gearcache.cache_compile(net.other_globals, config=strict_config())
    x = torch.ones(2, 4)
    before = cached(x)
    monkeypatch.setattr(results, "FACTOR", 5.0)
    assert torch.equal(cached(x), net.other_globals(x))
    assert not torch.equal(cached(x), before)
    assert "FACTOR" in cached.stats.miss_reasons[-1]
    monkeypatch.setattr(results, "FACTOR", 3.0)
    assert torch.equal(cached(x), before)
    assert cached.stats.traces == 2


def test_results_never_require_grad(cache_dir: object) -> None:
    net = results.Net()
    cached = gearcache.cache_compile(net.one, config=strict_config())
    assert net.linear.weight.requires_grad
    for _ in range(2):
        assert not cached(torch.randn(2, 4)).requires_grad


class Offset(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x - float(y.storage_offset()), x + y.itemsize, x.norm()

    def doubled(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = x * 2
        return found, found[1:]


@pytest.mark.parametrize("parameters", [{"gears": {"x": {0: [3, 2]}}}, {"dynamic": True}, {"dynamic": False}], ids=str)
def test_a_method_that_computes_with_a_storage_offset_is_refused(parameters: dict[str, Any], cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Offset().forward, config=strict_config(), **parameters)
    with pytest.raises(CaptureError, match=r"offset|returned non-Tensor"):
        cached(torch.ones(3, 4), torch.ones(4, 4)[1:])


def test_a_part_of_an_empty_result_has_its_strides(cache_dir: Path) -> None:
    for number, x in enumerate((torch.empty(4, 0).t(), torch.empty(0, 4), torch.ones(3, 4))):
        net, root = Offset(), cache_dir / str(number)
        cached = gearcache.cache_compile(net.doubled, dynamic=False, config=strict_config(), cache_dir=root)
        for found, expected in zip(cached(x), net.doubled(x), strict=True):
            assert (found.shape, found.stride()) == (expected.shape, expected.stride())
