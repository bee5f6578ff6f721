"""What `.refresh()` sees: everything that may change under a loaded method, checked again as at a load."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config

OFFSET = 1.0


def helper(x: Tensor) -> Tensor:
    return x + OFFSET


class Child(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return self.activate(x)

    def activate(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Child()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def run(self, x: Tensor) -> Tensor:
        x = helper(self.child(self.linear(x))) * self.scale
        return x * 2 if os.environ.get("GEARCACHE_TEST_REFRESH") else x


def _hook(module: Any, arguments: Any, output: Tensor) -> Tensor:
    return output * 3


def _attribute(net: Net, patch: pytest.MonkeyPatch) -> None:
    net.scale = 5.0


def _global(net: Net, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "OFFSET", 9.0)


def _function(net: Net, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "helper", lambda x: x - 7)


def _method(net: Net, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Child, "activate", lambda self, x: torch.sigmoid(x))


def _method_of_one_object(net: Net, patch: pytest.MonkeyPatch) -> None:
    net.child.activate = torch.tanh  # type: ignore[method-assign,assignment]


def _forward_of_torch(net: Net, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nn.Linear, "forward", lambda self, x: x * 4)


def _forward_hook(net: Net, patch: pytest.MonkeyPatch) -> None:
    net.child.register_forward_hook(_hook)


def _global_hook(net: Net, patch: pytest.MonkeyPatch) -> None:
    hooks = nn.modules.module._global_forward_hooks
    patch.setitem(hooks, -1, _hook)


def _variable(net: Net, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("GEARCACHE_TEST_REFRESH", "1")


def _child(net: Net, patch: pytest.MonkeyPatch) -> None:
    net.child = nn.Sequential(nn.Sigmoid())  # type: ignore[assignment]


def _weights(net: Net, patch: pytest.MonkeyPatch) -> None:
    net.linear.weight = nn.Parameter(torch.randn(4, 4))


CHANGES: list[Callable[[Net, pytest.MonkeyPatch], None]] = [
    _attribute,
    _global,
    _function,
    _method,
    _method_of_one_object,
    _forward_of_torch,
    _forward_hook,
    _global_hook,
    _variable,
    _child,
    _weights,
]


@pytest.fixture
def no_global_hooks() -> Iterator[None]:
    yield
    nn.modules.module._global_forward_hooks.pop(-1, None)


@pytest.mark.usefixtures("no_global_hooks")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_change_is_seen_after_refresh_and_both_ways_are_kept(
    cache_dir: Path, change: Callable[[Net, pytest.MonkeyPatch], None]
) -> None:
    net, x = Net(), torch.randn(2, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    with torch.no_grad():
        assert torch.equal(cached(x), net.run(x))
        with pytest.MonkeyPatch.context() as patch:
            change(net, patch)
            cached.refresh()
            expected = net.run(x)
            assert torch.equal(cached(x), expected)
            traces = cached.stats.traces
            again = gearcache.cache_compile(net.run, config=strict_config())
            assert torch.equal(again(x), expected)
            assert again.stats.traces == 0
        assert traces == (1 if change is _weights else 2)
        untouched = Net()
        third = gearcache.cache_compile(untouched.run, config=strict_config())
        assert torch.equal(third(x), untouched.run(x))
        assert third.stats.traces == 0
