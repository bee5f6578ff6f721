"""Whatever a user's names are: generated code keeps its own apart, cold and relaunched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


class Hiding(torch.nn.Module):
    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        torch.nn.init.eye_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)
        for name in names:
            object.__setattr__(self, name, 2.5)

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.buffers  # type: ignore[operator]


def test_attributes_may_be_called_like_methods_of_modules(cache_dir: Path) -> None:
    names = ("modules", "parameters", "buffers", "named_parameters", "children", "state_dict", "eval")
    for _ in range(2):  # the second one finds what the first has stored
        net = Hiding(names)
        method = gearcache.cache_compile(net.summed, config=strict_config(), gears={"x": {0: [2, 3]}})
        x = torch.randn(2, 4)
        assert torch.equal(method(x), net.summed(x))
    assert method.stats.hits == 1
