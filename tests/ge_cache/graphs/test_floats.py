"""Floats that vary, and floats that a method computes from them or from ints: as in eager at each call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.ge_cache.eager import EagerBackend
from tests.support.compared import assert_same
from tests.support.launches import serve_twice
from tests.support.scenarios import strict_config

FLOATS = (0.7, 1 / 3, 0.9, 3.0, 1e-3, 0.1, 1.0, 0.0)
#: What sympy does not know, and another type.
ODD = (0.7, 0.9, -0.0, math.inf, math.nan, 1, True, 0.8)
X = torch.rand(3, 4)
INTS = (3, 5, 7, 2, 19, 1, 0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.5
        self.average = 0.25

    def computed(self, x: Tensor, t: float) -> tuple[Tensor, ...]:
        rounded_often = x * (t * 0.1 * 10 - t) + (1.0 - t / 20) * x
        cancelled = x + t * 0 + (t - t)
        clamped = x * min(max(t, 0.1), 0.9) - abs(t - 0.5)
        powers = x * 2**t + x / 0.5**t + x * (t + 0.5) ** t
        return (x / t).softmax(-1), rounded_often, cancelled, clamped, powers

    def returned(self, x: Tensor, t: float) -> tuple[Tensor, float, float]:
        return x * t, t, t * 2

    def taken(self, x: Tensor, t: float) -> tuple[Tensor, ...]:
        parts = torch.full_like(x, t), x.masked_fill(x > t, -t), x.clamp(max=t), torch.where(x > t, x, t)
        written = x.clone().addcmul_(x, x, value=t).addcdiv_(x, x + 1, value=t)
        return *parts, written, t - x, t / x, x**t, torch.lerp(x, x * 2, t), x.add(x, alpha=t), torch.full((2,), t)

    def of_integers(self, x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        return x.long() * t, x.long() + t

    def of_an_int(self, x: Tensor, n: int) -> tuple[Tensor, ...]:
        length = x / (n + 1) ** 0.8 + math.sqrt(n)
        decayed = x * 0.99**n / (1 - 0.9 ** (n + 1))
        return x * (1 - n / 20) + torch.arange(n + 4).sum() * 0.1, length, decayed

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.scale

    def written(self, x: Tensor, t: float) -> Tensor:
        self.average = self.average * 0.9 + t * 0.1
        return x * self.average

    def branches(self, x: Tensor, t: float) -> Tensor:
        if t == 0:
            return x.argmax(-1)
        doubled = t * 2
        return x + doubled if doubled + 0.5 > 2.0 else x * t

    def overflowing(self, x: Tensor, t: float) -> Tensor:
        y = t * 1e300
        return x * 2 if y < math.inf else x * 3

    def signs(self, x: Tensor, t: float) -> tuple[Any, ...]:
        return x * 2, t + 0, t - 0, x * (t - 0.0)

    def of_fixed(self, x: Tensor, t: float, u: float) -> Tensor:
        return x * u * (t / 2) if t == 1.0 else x * u

    def scaled_by(self, x: Tensor, t: float) -> Tensor:
        return x * t

    def narrow(self, x: Tensor, t: float) -> Tensor:
        return x.bfloat16() > t

    def narrow_product(self, x: Tensor, n: int) -> Tensor:
        return x.bfloat16() * n

    def other_places(self, x: Tensor, t: float) -> tuple[Tensor, ...]:
        x = x.double()
        return torch.add(x, x, alpha=t), torch.rsub(x, t, alpha=2), torch.div(x, t, rounding_mode="trunc")

    def as_size(self, x: Tensor, t: float) -> Tensor:
        return x[:, : int(t * 4)] * t


def _serve(name: str, values: Sequence[Any], x: Tensor, **options: Any) -> list[int]:
    """Serve calls of two launches; return the traces of each."""
    served = serve_twice(lambda: Net().eval(), name, [(x, value) for value in values], **options)
    return [cached.stats.traces for cached in served]


GEARS = {"gears": {"x": {0: [2, 3]}}}


@pytest.mark.parametrize(
    ("name", "values", "options", "traces"),
    [
        *((name, FLOATS, {}, 2) for name in ("computed", "returned", "taken", "of_integers")),
        ("of_an_int", INTS, {}, 1),
        ("written", FLOATS, {}, 3),
        ("branches", (0.7, 0.9, 3.0, 0.2, 2.5, 0.0, 0.0), {}, 4),
        ("scaled_by", FLOATS[:4], GEARS, 2),
        # A constant of each variant.
        ("as_size", FLOATS[:3], {}, 4),
    ],
)
def test_as_many_graphs_as_are_needed_serve_all_values(
    cache_dir: Path, name: str, values: Sequence[Any], options: dict[str, Any], traces: int
) -> None:
    assert _serve(name, values, X, **options) == [traces, 0]


def test_floats_are_constants_of_padded_calls(cache_dir: Path) -> None:
    config = strict_config(on_miss="pad", pad_values={"x": 0})
    _serve("scaled_by", FLOATS[:3], X, config=config, gears={"x": {0: [4, 8]}})


def test_values_that_are_no_real_number_are_constants(cache_dir: Path) -> None:
    _serve("written", ODD, X)


@pytest.mark.parametrize("name", ["overflowing", "signs"])
def test_what_sympy_would_decide_otherwise(cache_dir: Path, name: str) -> None:
    values = (1.0, 2.0, 1e200, -0.0, 2.0**53)
    _serve(name, values, X, again=1)  # an overflow in a trace: that call is traced again


def test_a_float_of_the_module_varies_across_launches(cache_dir: Path) -> None:
    x, traces = X, []
    for scale in (0.5, 0.75, 0.9, -2.0):
        net = Net().eval()
        net.scale = scale
        cached = gearcache.cache_compile(net.scaled, config=strict_config())
        assert torch.equal(cached(x), x * scale)
        traces.append(cached.stats.traces)
    assert traces == [1, 1, 0, 0]


def test_what_a_branch_fixes_is_a_constant_beside_numbers(cache_dir: Path) -> None:
    calls = [(X, 2.0, 2.0), (X, 3.0, 3.0), (X, 1.0, 4.0), (X, 1.0, 5.0)]
    assert serve_twice(Net, "of_fixed", calls)[0].stats.traces == 3


@pytest.mark.parametrize("name", ["narrow", "other_places"])
def test_floats_are_constants_where_compiled_code_would_lose_digits(
    cache_dir: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor would round the float first, in some places to 32 bits: it gets none, which needs no compile to see."""
    monkeypatch.setattr(EagerBackend, "compiles", True)
    cached = gearcache.cache_compile(getattr(Net(), name), config=strict_config(), dynamic=None)
    for t in (0.7, 1 / 3, 0.9):
        assert_same(cached(X, t), getattr(Net(), name)(X, t))
    assert cached.stats.compiles == 3


@pytest.mark.parametrize(("is_ge", "compiles"), [(False, 2), (True, 3)])
def test_an_int_beside_16_bits_is_a_number_where_inductor_compiles(
    cache_dir: Path, is_ge: bool, compiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GE gets the graph as it was recorded, and may round the int first."""
    monkeypatch.setattr(EagerBackend, "compiles", True)
    monkeypatch.setattr(EagerBackend, "is_ge", is_ge)
    cached = gearcache.cache_compile(Net().narrow_product, config=strict_config(), dynamic=None)
    for n in (1001, 3, 259):
        assert_same(cached(X, n), Net().narrow_product(X, n))
    assert cached.stats.compiles == compiles
