"""What a graph holds of a module follows it in memory, and goes with it: a server that swaps models stays as small as
one of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gearcache
from tests.support.at_once import at_once
from tests.support.scenarios import strict_config

SIZE = 64
GEARS = {"x": {0: [2]}}
X = torch.linspace(-1, 1, SIZE).repeat(2, 1)


class Net(nn.Module):
    """A layer whose weight lies in a file: `/proc/self/maps` shows whether the process has let go of it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.layer = nn.Linear(SIZE, SIZE, bias=False)
        self.layer.weight = self.mapped()

    def mapped(self) -> nn.Parameter:
        values = torch.from_file(str(self.file), shared=True, size=SIZE * SIZE).view(SIZE, SIZE)
        return nn.Parameter(values, requires_grad=False)

    def decode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.layer(x).relu(), self.layer.weight, torch.arange(3.0).to(x.device)


@pytest.fixture(autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory, compiled_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all tests of a process serve what the first has compiled: it is the same code."""
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "unloaded"))
    gc.collect()
    gc.freeze()  # collections look at what the test makes


@pytest.fixture
def net(tmp_path: Path) -> Callable[[], Net]:
    numbers = iter(range(100))

    def made() -> Net:
        number = next(numbers)
        file = tmp_path / f"weights{number}"
        file.write_bytes(torch.full((SIZE, SIZE), 0.01 * (number + 1)).numpy().tobytes())
        return Net(file)

    return made


def serve(net: Net, backend: str, change: str = "") -> gearcache.CachedMethod:
    method = gearcache.cache_compile(net.decode, gears=GEARS, config=strict_config(backend=backend))
    expect_equal(method, net)
    if change == "refreshed":
        method.refresh()
    elif change == "another parameter":
        net.layer.weight = net.mapped()
    elif change == "other values":
        net.layer.weight.data = net.mapped().data
    elif change == "written in place":
        net.layer.weight.mul_(3)
    expect_equal(method, net)
    return method


def expect_equal(method: gearcache.CachedMethod, net: Net) -> None:
    for ours, eager in zip(method(X), net.decode(X), strict=True):
        torch.testing.assert_close(ours, eager)


def mapped() -> int:
    gc.collect()
    return sum("/weights" in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_the_memory_of_the_weights_goes_with_the_module(net: Callable[[], Net], backend: str) -> None:
    for change in ("", "refreshed", "another parameter", "other values", "written in place", ""):
        method = serve(net(), backend, change)
        assert mapped()
        del method
        assert not mapped()


def _resized(net: Net) -> None:
    values = net.layer.weight.clone()
    net.layer.weight.untyped_storage().resize_(0)
    net.layer.weight.untyped_storage().resize_(values.nbytes)
    net.layer.weight.data.copy_(values)


def _random() -> nn.Parameter:
    return nn.Parameter(torch.randn(SIZE, SIZE), requires_grad=False)


MOVES: dict[str, Callable[[Net], Any]] = {
    "data exchanged": lambda net: setattr(net.layer.weight, "data", torch.randn(SIZE, SIZE)),
    "data in a flat buffer": lambda net: setattr(net.layer.weight, "data", torch.randn(9000)[7:4103].view(SIZE, SIZE)),
    "shared memory": lambda net: net.share_memory(),
    "to another dtype and back": lambda net: (net.bfloat16(), net.float()),
    "a state dict assigned": lambda net: net.load_state_dict({"layer.weight": torch.randn(SIZE, SIZE)}, assign=True),
    "storage resized": _resized,
    "swapped": lambda net: torch.utils.swap_tensors(net.layer.weight, _random()),
}


def test_weights_that_move_in_memory_are_followed_by_compiled_code(net: Callable[[], Net]) -> None:
    model = net()
    model.layer.weight = _random()
    method = gearcache.cache_compile(model.decode, gears=GEARS, config=strict_config(backend="inductor"))
    with torch.no_grad():
        for move in MOVES.values():
            expect_equal(method, model)
            move(model)
            rubbish = [torch.full((SIZE, SIZE), torch.nan) for _ in range(50)]  # what was freed is written over
            expect_equal(method, model)
            del rubbish


def test_a_server_that_swaps_models_keeps_neither_descriptors_nor_mappings(net: Callable[[], Net]) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())), len(Path("/proc/self/maps").read_text().splitlines())

    for _ in range(2):
        serve(net(), "inductor")
    before = held()
    for _ in range(3):
        serve(net(), "inductor")
    descriptors, mappings = held()
    assert descriptors <= before[0]
    assert mappings <= before[1] + 2  # of the allocator


def test_models_that_are_served_at_once_and_after_each_other_share_no_weights(net: Callable[[], Net]) -> None:
    model = net()
    kept = serve(model, "inductor")(X)
    expected = [result.clone() for result in model.decode(X)]
    del model  # its results outlive it

    def swap() -> None:
        for _ in range(2):
            first, second = net(), net()
            methods = serve(first, "inductor"), serve(second, "inductor")
            for _ in range(2):
                expect_equal(methods[0], first)
                expect_equal(methods[1], second)

    at_once(swap, swap, swap)
    for ours, eager in zip(kept, expected, strict=True):
        torch.testing.assert_close(ours, eager)
