"""`torch.vmap` inside a cached method, and cached methods inside `torch.vmap`: beside eager, and relaunched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.compared import assert_same
from tests.support.launches import serve_twice
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("heads", torch.randn(3, 4))

    def plain(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.normalised(x), self.columns(x), self.masked(x)

    def normalised(self, x: Tensor) -> Tensor:
        return torch.vmap(lambda row: row * row.sum() / (1 + row.abs().max()))(x)

    def columns(self, x: Tensor) -> Tensor:
        return torch.vmap(torch.softmax, in_dims=(1, None), out_dims=1)(x, 0)

    def nested(self, x: Tensor) -> Tensor:
        return torch.vmap(lambda row: torch.vmap(lambda head: self.linear(row) * head)(self.heads))(x)

    def masked(self, x: Tensor) -> Tensor:
        def allowed(query: Tensor, key: Tensor) -> Tensor:
            return key <= query

        at = torch.arange(x.size(0))
        return torch.vmap(torch.vmap(allowed, in_dims=(None, 0)), in_dims=(0, None))(at, at)

    def written(self, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)

        def write(target: Tensor, row: Tensor) -> Tensor:
            target.copy_(row * 2)
            return target + 1

        return torch.vmap(write)(out, x) + out

    def gradient(self, x: Tensor) -> Tensor:
        return torch.vmap(torch.func.grad(lambda row: (row**2).sum()))(x)


DIMS: dict[str, dict[str, Any]] = {
    "gears": {"gears": {"x": {0: [2, 3]}}},
    "dynamic": {"dynamic": True},
    "static": {"dynamic": False},
}


@pytest.mark.parametrize(
    ("method", "dims"),
    [("plain", "gears"), ("nested", "static"), ("written", "dynamic")],
)
def test_a_method_with_vmap_gives_what_eager_gives_and_is_relaunched(cache_dir: Path, method: str, dims: str) -> None:
    served = serve_twice(Net, method, [(torch.randn(rows, 4),) for rows in (3, 2)], **DIMS[dims])
    assert [cached.stats.eager_calls for cached in served] == [0, 0]
    assert served[0].stats.traces > 0


def test_a_cached_method_inside_of_a_transform_runs_as_it_is(cache_dir: Path) -> None:
    net, x = Net(), torch.randn(5, 3, 4)
    cached = gearcache.cache_compile(net.normalised, config=strict_config(), dynamic=False)
    cached(x[0])
    torch.testing.assert_close(torch.vmap(cached)(x), torch.vmap(net.normalised)(x))
    gradient = torch.func.grad(lambda row: cached(row).sum())
    torch.testing.assert_close(gradient(x[0]), torch.func.grad(lambda row: net.normalised(row).sum())(x[0]))
    assert_same(cached(x[0]), net.normalised(x[0]))


def test_transforms_that_need_autograd_are_refused_by_name(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().gradient, config=strict_config(), dynamic=True)
    with pytest.raises(CaptureError, match=r"`torch\.func\.grad`"):
        cached(torch.ones(2, 4))
