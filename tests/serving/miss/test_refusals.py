"""What is refused at a call: the message names method, argument and cause, and nothing ran."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import gearcache
from gearcache.errors import CaptureError, GearcacheError, GradientRequired, InputError
from gearcache.ge_cache.eager import EagerBackend
from tests.scenarios.odd import Net
from tests.support.scenarios import strict_config


@pytest.fixture
def cached_two(cache_dir: Path) -> Callable[..., Any]:
    """`two`, called once with sizes (2, 4)."""
    cached = gearcache.cache_compile(Net().two, config=strict_config(), gears={"x": {0: [2, 4]}})
    cached(torch.ones(2, 4), torch.ones(2, 4))
    return cached  # type: ignore[no-any-return]


@pytest.mark.usefixtures("compiled_here")
def test_inductor_refuses_random_operators_by_name_and_compiles_nothing(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().noisy, config=strict_config("inductor", jobs=1))
    with pytest.raises(CaptureError, match=r"`Net\.noisy`.*random numbers \(aten\."):
        cached(torch.ones(2, 4))
    assert cached.stats.compiles == 0


def test_an_input_that_requires_grad_is_refused_with_grad_mode_on(cached_two: Callable[..., Any]) -> None:
    x, y = torch.ones(2, 4, requires_grad=True), torch.ones(2, 4)
    with pytest.raises(GradientRequired, match=r"`Net\.two`: argument `x` is a tensor that requires grad"):
        cached_two(x, y)
    with torch.no_grad():
        assert torch.equal(cached_two(x, y), x * 2 + y)
    with pytest.raises(GradientRequired):
        cached_two(x, y)
    with pytest.raises(GradientRequired, match="`x`"):  # a first call
        gearcache.cache_compile(Net().plain, config=strict_config())(x)


@pytest.mark.parametrize("on_miss", ["eager", "background", "compile"])
def test_an_input_that_requires_grad_is_refused_within_the_gears_and_outside(cache_dir: Path, on_miss: str) -> None:
    config = strict_config(on_miss=on_miss)
    cached = gearcache.cache_compile(Net().plain, config=config, gears={"x": {0: [2, 4]}})
    for rows in (4, 3, 2):
        with pytest.raises(GradientRequired, match="`x`"):
            cached(torch.ones(rows, 4, requires_grad=True))


def test_a_tensor_that_does_not_fit_is_named_with_what_is_allowed(cache_dir: Path, subtests: pytest.Subtests) -> None:
    cached = gearcache.cache_compile(Net().two, config=strict_config(), gears={"x": {0: [2, 4]}})
    good = torch.ones(2, 4)
    cached(good, good.clone())
    for bad, words in (
        (torch.ones(2, 4, dtype=torch.float64), "of dtype torch.float64; allowed"),
        (torch.ones(2, 4, device="meta"), "on device meta; allowed: device cpu"),
        (torch.ones(2, 1, 4), "of rank 3; allowed: rank 2"),
        (torch.ones(2, 4).to_sparse(), "of layout torch.sparse_coo"),
    ):
        with subtests.test(words), pytest.raises(InputError, match=re.escape(words)) as caught:
            cached(good, bad)
        assert caught.value.argument == "y"
    assert cached.stats.compiles == 2
    assert torch.equal(cached(good, good.clone()), good * 3)


def test_what_fits_no_parameter_is_refused_and_later_calls_are_right(cached_two: Callable[..., Any]) -> None:
    class Mine(torch.Tensor):
        pass

    good = torch.ones(2, 4)
    for _ in range(2):
        for arguments in ((good,), (good, good, good)):
            with pytest.raises(TypeError):
                cached_two(*arguments)
        with pytest.raises((GearcacheError, TypeError)):
            cached_two(good, "text")
        with pytest.raises(GearcacheError):
            cached_two(good.as_subclass(Mine), good)
        with contextlib.suppress(InputError):
            assert torch.equal(cached_two(good, good), good * 3), "the same tensor twice is right or refused"
    parameter = nn.Parameter(good.clone(), requires_grad=False)
    assert torch.equal(cached_two(parameter, good), good * 3)


def test_inputs_that_overlap_a_written_one_are_refused(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().write, config=strict_config(), gears={"x": {0: [2, 4]}})
    cached(torch.ones(2, 4), torch.ones(2, 4))
    memory = torch.ones(3, 4)
    fresh = gearcache.cache_compile(Net().write, config=strict_config(), gears={"x": {0: [2, 4]}})
    for method in (cached, fresh):
        with pytest.raises(InputError, match="shares memory with"):
            method(memory[:2], memory[1:])
        assert torch.equal(memory, torch.ones(3, 4))


class _Doubling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.Tensor.add else result


def test_under_a_torch_function_mode_the_method_itself_runs(cache_dir: Path) -> None:
    net, x = Net(), torch.ones(2, 4)
    cached = gearcache.cache_compile(net.two, config=strict_config())
    for _ in range(2):  # before and after the load
        with _Doubling():
            expected, found = net.two(x, x), cached(x, x.clone())
        assert torch.equal(found, expected)
        assert torch.equal(cached(x, x.clone()), net.two(x, x))
        assert not torch.equal(expected, net.two(x, x)), "the mode has seen the addition"
    assert cached.stats.traces == 1


class Drawing(torch.nn.Module):
    """What draws random numbers only with a dropout, or in training."""

    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.part = part

    def run(self, x: torch.Tensor) -> torch.Tensor:
        answer = self.part(x)
        return answer[0] if isinstance(answer, tuple) else answer


@pytest.mark.parametrize(
    ("part", "is_drawing"),
    [
        (torch.nn.LSTM(4, 5), False),
        (torch.nn.RReLU().eval(), False),
        (torch.nn.RReLU(), True),
    ],
    ids=["LSTM", "RReLU in evaluation", "RReLU"],
)
def test_what_may_draw_random_numbers_is_refused_only_where_it_does(
    cache_dir: Path, part: torch.nn.Module, is_drawing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EagerBackend, "allows_random", False)
    net, x = Drawing(part), torch.ones(2, 3, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    with torch.no_grad():
        if is_drawing:
            with pytest.raises(CaptureError, match="draws random numbers"):
                cached(x)
        else:
            torch.testing.assert_close(cached(x), net.run(x))
