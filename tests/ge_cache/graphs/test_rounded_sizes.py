"""Sizes that a method computes with floats: one graph serves all, and each rounds and branches as Python does."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.ge_cache.private_torch.symbols import is_exact, is_faithful, print_expression
from tests.support.compared import assert_same
from tests.support.launches import serve_twice
from tests.support.sampled import chosen
from tests.support.scenarios import strict_config

#: Lengths at which `0.1 * n * 3`, `n * 0.7 * 10` and `n / 49 * 49` are not what real numbers would be.
LENGTHS = chosen((8, 12, 13, 16, 27, 32, 49, 53, 54, 55, 63, 64, 98, 99), kept=(12, 16, 27, 49, 55, 63, 64))


class Net(nn.Module):
    def half(self, x: Tensor) -> Tensor:
        return x[:, : int(x.shape[1] * 0.5)] * 2

    def pieces(self, x: Tensor) -> Tensor:
        return x.new_zeros(math.ceil(x.shape[1] / 3), round(x.shape[1] / 2)) + x.sum()

    def grid(self, x: Tensor) -> Tensor:
        side = int(math.sqrt(x.shape[1]))
        return x[:, : side * side].reshape(x.shape[0], side, -1)

    def resized(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x[:, None], scale_factor=0.5, mode="linear")

    def joined(self, x: Tensor) -> Tensor:
        return x.new_zeros(1 + int(x.shape[1] * 0.7 * 10) % 7) + x.sum()

    def rounded_product(self, x: Tensor) -> Tensor:
        return x[:, : math.floor(x.shape[1] * 0.7)]

    def floored(self, x: Tensor) -> Tensor:
        return x.new_zeros(int(x.shape[1] // 0.2) % 90) + x.shape[1] // 1.1 + math.floor(x.shape[1] % 0.5)

    def beside(self, x: Tensor) -> Tensor:
        return x[:, : int(x.shape[1] * 0.5)] * (x.shape[0] * 0.1 * 3)

    def scaled(self, x: Tensor) -> Tensor:
        rows = x[:, None, :, None]
        return nn.functional.scaled_dot_product_attention(rows, rows, rows, scale=x.shape[1] * 0.7 * 0.3)

    def products(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] * 0.1 * 3 == x.shape[1] * 0.3 else x * 3

    def quotients(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] / 49 * 49 < x.shape[1] else x * 3

    def square(self, x: Tensor) -> Tensor:
        return x * 2 if int(math.sqrt(x.shape[1])) ** 2 == x.shape[1] else x * 3

    def returned(self, x: Tensor) -> tuple[Tensor, float]:
        return x + 1, x.shape[1] * 0.7 * 0.3


EACH = len(LENGTHS)
#: Name -> how many graphs serve all lengths, with dynamic sizes: a branch has one for each way.
GRAPHS = {
    "half": 1,
    "pieces": 1,
    "grid": 2,  # a whole square is not sliced
    "resized": 1,
    "products": 2,
    "quotients": 2,
    "square": 2,
    "joined": EACH,
    "rounded_product": EACH,
    "floored": EACH,
    "beside": 1,
    "scaled": EACH,
    "returned": 1,
}


INPUTS = [(torch.linspace(0, 1, 2 * length, dtype=torch.float64).reshape(2, length),) for length in LENGTHS]


@pytest.mark.parametrize("name", GRAPHS)
def test_all_lengths_are_served_as_by_the_method_also_relaunched(name: str, cache_dir: Path) -> None:
    cached, _ = serve_twice(Net, name, INPUTS, config=strict_config(max_variants=40), dynamic=True)
    assert (cached.stats.compiles, cached.stats.eager_calls) == (GRAPHS[name], 0)


@pytest.mark.parametrize("name", ["products", "quotients", "square", "grid", "joined", "floored"])
def test_gears_take_the_branch_that_python_takes(name: str, cache_dir: Path) -> None:
    serve_twice(Net, name, INPUTS, config=strict_config(max_variants=40), gears={"x": {1: LENGTHS}})


def test_a_gear_whose_other_sizes_cannot_stay_open_gets_a_graph_for_each(cache_dir: Path) -> None:
    class Ratio(nn.Module):
        def run(self, x: Tensor) -> tuple[Tensor, Tensor]:
            rows, columns = x.shape
            number = abs(round((rows + columns) / float(columns))) % 40
            return x.new_ones(number + 1), x * number

    net = Ratio()
    cached = gearcache.cache_compile(net.run, config=strict_config(), cache_dir=cache_dir, gears={"x": {1: [8, 12]}})
    with torch.no_grad():
        for sizes in ((2, 8), (3, 12), (30, 12), (9, 8)):
            assert_same(cached(torch.ones(sizes)), net.run(torch.ones(sizes)))


class Counted(nn.Module):
    def half(self, x: Tensor, number: int) -> Tensor:
        return x[:, : int(number * 0.5)] * int(number / 3)

    def side(self, x: Tensor, number: int) -> Tensor:
        side = int(math.sqrt(number))
        return x[:, : side * side].reshape(x.shape[0], side, side)

    def resized(self, x: Tensor, number: int) -> Tensor:
        return nn.functional.interpolate(x[:, None], size=number)

    def product(self, x: Tensor, number: int) -> Tensor:
        return x[:, : int(number * 0.7)]

    def compared(self, x: Tensor, number: int) -> Tensor:
        return x * 2 if x.shape[1] * 0.7 < number else x * 3


NUMBERS = chosen((8, 9, 16, 17, 20, 40, 54, 70), kept=(8, 9, 17, 54, 70))


@pytest.mark.parametrize("options", [{"dynamic": True}, {"gears": {"x": {1: [64, 99]}}}], ids=["dynamic", "gears"])
@pytest.mark.parametrize(
    ("name", "graphs"),
    [("half", 1), ("side", 1), ("resized", 1), ("product", len(NUMBERS)), ("compared", len(NUMBERS))],
)
def test_ints_that_are_rounded_vary_too(name: str, graphs: int, options: dict[str, Any], cache_dir: Path) -> None:
    net = Counted()
    cached = gearcache.cache_compile(
        getattr(net, name), config=strict_config(max_variants=40), cache_dir=cache_dir, **options
    )
    with torch.no_grad():
        for length in (99, 64):
            x = torch.linspace(0, 1, 2 * length).reshape(2, length)
            for number in NUMBERS:
                assert_same(cached(x, number), getattr(net, name)(x, number))
            if length == 99:
                assert cached.stats.traces <= graphs + 2
    assert cached.stats.eager_calls == 0


def test_sizes_that_stay_static_are_tried_with_symbols_once_and_other_branches_anew(cache_dir: Path) -> None:
    class Chosen(nn.Module):
        def run(self, x: Tensor, ratio: float) -> Tensor:
            return x[:, : int(x.shape[1] * 0.7)] if ratio < 1 else x[:, : x.shape[1] // 2]

    net = Chosen()
    for ratio, traces in ((0.5, EACH + 3), (2.0, 2)):
        cached = gearcache.cache_compile(net.run, config=strict_config(max_variants=40), cache_dir=cache_dir)
        with torch.no_grad():
            for length in LENGTHS:
                x = torch.linspace(0, 1, 2 * length).reshape(2, length)
                assert_same(cached(x, ratio), net.run(x, ratio))
        assert cached.stats.traces <= traces, ratio


@pytest.mark.parametrize("number", [True, False, 3])
def test_a_bool_is_divided_by_a_size_like_an_int(number: int, cache_dir: Path) -> None:
    class Ratio(nn.Module):
        def run(self, x: Tensor, number: int) -> Tensor:
            return x * (number / x.shape[1]) if (number > 1) / x.shape[1] < 0.1 else x

    cached = gearcache.cache_compile(Ratio().run, config=strict_config(), cache_dir=cache_dir, dynamic=True)
    with torch.no_grad():
        for length in (7, 9, 20):
            x = torch.linspace(0, 1, 2 * length).reshape(2, length)
            assert_same(cached(x, number), Ratio().run(x, number))


def of(text: str) -> Callable[[], Any]:
    """Return a function that makes an expression of torch, of the size `s` and the int `n`."""

    def make() -> Any:
        import sympy
        from torch.utils._sympy import functions

        names = {name: getattr(functions, name) for name in dir(functions) if not name.startswith("__")}
        sizes = {"s": sympy.Symbol("s0", integer=True, positive=True), "n": sympy.Symbol("n0", integer=True)}
        return eval(text, names | sizes)  # noqa: S307

    return make


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("TruncToInt(0.5 * s)", "trunc(0.5*s0)"),
        ("CeilToInt(IntTrueDiv(3 * s, 7))", "ceil((3*s0) / 7)"),
        ("RoundToInt(1.5 * ToFloat(s) + 0.25)", "round(0.25 + 1.5*float(s0))"),
        ("TruncToInt(OpaqueUnaryFn_sqrt(ToFloat(s)))", "trunc(sqrt(float(s0)))"),
        ("2 * FloorToInt(FloatPow(ToFloat(s), 0.5)) + n", "n0 + 2*floor(float(s0) ** 0.5)"),
        ("0.5 * s > 3.25", "0.5*s0 > 3.25"),
        # A product that is rounded may be two: of `s * 0.7 * 0.3`, sympy makes `0.21 * s`.
        ("TruncToInt(0.7 * s)", None),
        ("3 * IntTrueDiv(s, 7) > n", None),
        ("CeilToInt(IntTrueDiv(s, 7) + 0.5)", None),
        ("TruncToInt(FloatPow(0.1 * s, 0.5))", None),
        ("1000000.5 * s > n", None),
    ],
)
def test_expressions_are_printed_where_sympy_computes_as_floats_do(expression: str, text: str | None) -> None:
    made = of(expression)()
    assert is_faithful(made) is (text is not None)
    if text is not None:
        assert print_expression(made) == text


def test_exact_expressions_are_what_floats_give_in_any_order() -> None:
    assert is_exact(of("1.5 * s + 0.25 * n - 3.5")())
    for size in range(3000):
        for number in (-5, 0, 7, 1024):
            assert 1.5 * size + 0.25 * number - 3.5 == -3.5 + number / 4 + size / 2 * 3
