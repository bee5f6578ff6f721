"""What a trace asks and sets of autograd is compared when its graph is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from gearcache import CompilerConfig
from gearcache.errors import CaptureError


def test_a_tensor_whose_requires_grad_the_method_sets_is_compared(cache_dir: Path) -> None:
    """A trace takes what is set as it is already for nothing; of a tensor that has changed eager sets it."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.ones(2)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            self.table.requires_grad_(False)
            return x * self.table

    net, x = Net(), torch.ones(2)
    cached = gearcache.cache_compile(net.run, config=CompilerConfig(backend="eager", strict=True))
    with torch.no_grad():
        assert torch.equal(cached(x), x)
        net.table.requires_grad_(True)
        cached.refresh()
        with pytest.raises(CaptureError, match="requires_grad_"):
            cached(x)


def test_weights_that_are_frozen_between_calls_are_seen(cache_dir: Path) -> None:
    class Asking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            return y + 1 if y.requires_grad else y - 1

    net, x = Asking(), torch.randn(3, 4)
    cached = gearcache.cache_compile(net.run, config=CompilerConfig(backend="eager", strict=True))
    for requires_grad in (True, False, True):
        net.requires_grad_(requires_grad)
        torch.testing.assert_close(cached(x), net.run(x).detach())
