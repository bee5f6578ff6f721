"""Functions of torch whose results follow from their arguments: a method may branch on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


def _promoted(x: Tensor) -> bool:
    return torch.promote_types(x.dtype, torch.int8) == torch.float32


@pytest.mark.parametrize("asked", [torch.is_floating_point, _promoted], ids=lambda f: f.__name__)
def test_each_dtype_takes_its_own_branch(cache_dir: Path, asked: Callable[[Tensor], bool]) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, of: Tensor) -> Tensor:
            return x * 2 if asked(of) else x + 1

    x = torch.ones(2)
    for launch in range(2):
        net = Net()
        cached = gearcache.cache_compile(net.forward, config=strict_config())
        for dtype in (torch.float32, torch.int64, torch.complex64, torch.float32):
            of = torch.ones(3, dtype=dtype)
            assert torch.equal(cached(x, of), net.forward(x, of)), dtype
        assert (cached.stats.traces == 0) == bool(launch)
