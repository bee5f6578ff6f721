"""Cases of kernels in place of torch's own, each for a process of its own: torch does not quite take them back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.library import _scoped_library, register_fake

import gearcache
from gearcache import errors
from gearcache.guards.evidence.overrides import overrides_component
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def run(self, x: Tensor) -> Tensor:
        return nn.functional.silu(self.linear(x))


def served(net: Net, cache_dir: Path, backend: str = "eager") -> gearcache.api.CachedMethod:
    """Call a cached method of its own and compare with the method."""
    cached = gearcache.cache_compile(net.run, cache_dir=cache_dir, dynamic=False, config=strict_config(backend))
    x = torch.arange(6.0).view(2, 3)
    with torch.no_grad():
        assert torch.equal(cached(x), net.run(x))
    return cached


def component(compiled: bool = True) -> list[list[object]]:
    return overrides_component("Net.run", compiled=compiled)


def sizes(shape: tuple[int, ...]) -> Callable[..., Tensor]:
    return lambda x, *_: x.new_empty(shape)


def a_kernel_above_the_device_is_refused_where_a_compiler_takes_the_graph(cache_dir: Path) -> None:
    net = Net()
    for key in ("Autograd", "AutogradCPU", "CompositeImplicitAutograd", "AutocastCPU"):
        with _scoped_library("aten", "IMPL") as library:
            library.impl("silu", lambda x: x * 2, key)
            with pytest.raises(errors.CaptureError, match=rf"`Net.run` cannot be cached: .* `aten::silu` and {key},"):
                served(net, cache_dir, "inductor")


def without_a_compiler_it_is_called_as_the_process_has_it(cache_dir: Path) -> None:
    net = Net()
    assert served(net, cache_dir).stats.misses == 1
    for factor, misses in ((2, 1), (3, 0)):
        with _scoped_library("aten", "IMPL") as library:
            library.impl("silu", lambda x, factor=factor: x * factor, "Autograd")
            assert served(net, cache_dir).stats.misses == misses
    assert served(net, cache_dir).stats.misses == 0


def a_composite_that_the_device_has_a_kernel_for_is_another_key(cache_dir: Path) -> None:
    net = Net()
    assert served(net, cache_dir).stats.misses == 1
    for factor, misses in ((2, 1), (3, 0)):
        with _scoped_library("aten", "IMPL") as library:
            library.impl("linear", lambda x, w, b=None, factor=factor: x * factor, "CPU")
            assert component() == [["aten::linear", "CPU kernel", None]]
            assert served(net, cache_dir).stats.misses == misses
    assert served(net, cache_dir).stats.misses == 0


def fakes_are_compared(cache_dir: Path) -> None:
    found = []
    for shape in ((2,), (3,), (2,)):
        with _scoped_library("aten", "IMPL") as library:
            register_fake("aten::mm", sizes(shape), lib=library)
            found.append(component())
    assert found[0] == found[2] != found[1] != []
    assert ("aten::mm", "fake") in {(name, part) for name, part, _ in found[0]}


def a_fallback_for_all_operators_is_refused(cache_dir: Path) -> None:
    with _scoped_library("_", "IMPL") as library:
        library.fallback(lambda operator, *args, **kwargs: None, "Lazy")
        with pytest.raises(errors.CaptureError, match="a fallback for all operators"):
            component()


def run() -> None:
    """The process: run the case that the first argument names with the folder that is the second."""
    globals()[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(sys.argv[1]))
