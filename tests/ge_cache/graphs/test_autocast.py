"""Operators that cast inside their kernels under autocast are refused, where eager would answer in another dtype."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config

NAME = "gearcache_test_autocast::product"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.bilinear = nn.Bilinear(8, 8, 2)
        self.linear = nn.Linear(8, 8)

    def encoded(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]

    def mixed(self, x: Tensor) -> Tensor:
        return self.bilinear(x, x)  # type: ignore[no-any-return]

    def inverted(self, x: Tensor) -> Tensor:
        return torch.linalg.pinv(x)

    def multiplied(self, x: Tensor) -> Tensor:
        return torch.ops.gearcache_test_autocast.product(x, x.mT)  # type: ignore[no-any-return]

    def in_a_region(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.bilinear(x, x)  # type: ignore[no-any-return]


@pytest.fixture
def product() -> Callable[..., Tensor]:
    def compute(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y).float() + 1

    operator = torch.library.custom_op(NAME, compute, mutates_args=())
    operator.register_fake(lambda x, y: x.new_empty(*x.shape[:-1], y.shape[-1], dtype=torch.float32))
    return operator


def cached(function: Callable[..., Tensor], cache_dir: Path) -> Callable[..., Tensor]:
    return gearcache.cache_compile(function, config=strict_config("eager"), cache_dir=cache_dir)


@pytest.mark.parametrize("name", ["encoded", "mixed", "inverted", "multiplied"])
def test_what_casts_inside_its_kernel_is_refused_under_autocast_only(
    name: str, product: Callable[..., Tensor], cache_dir: Path
) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8)
    method = cached(getattr(net, name), cache_dir)
    with torch.no_grad():
        assert torch.equal(method(x), getattr(net, name)(x))
        with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(CaptureError, match=r"under `torch\.autocast`"):
            method(x)


def test_a_region_of_the_method_counts_and_a_way_out_works(product: Callable[..., Tensor], cache_dir: Path) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8)
    with pytest.raises(CaptureError, match="bilinear` by"):
        cached(net.in_a_region, cache_dir)(x)
    torch.library.register_autocast(NAME, "cpu", torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(cached(net.multiplied, cache_dir)(x), net.multiplied(x))
