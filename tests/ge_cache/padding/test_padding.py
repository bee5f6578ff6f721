"""`on_miss="pad"`: calls between gears, what proves them right, and what is refused."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_leaves

import gearcache
from gearcache.errors import GearSpecError, GraphError, InputError, UnknownGear
from tests.scenarios.counters import Meter
from tests.scenarios.padded import Net
from tests.support.sampled import examples, sampled
from tests.support.scenarios import strict_config


class Module(torch.nn.Module):
    """A module around one function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("pool", torch.zeros(16, 4))
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def _padded(function: Callable[..., Any], sizes: tuple[int, ...] = (4, 8), fill: Any = 0.0, dim: int = 0) -> Any:
    config = strict_config(on_miss="pad", pad_values={"x": fill})
    return gearcache.cache_compile(Module(function).forward, config=config, gears={"x": {dim: list(sizes)}})


def _write_pool(module: Any, x: Tensor) -> Tensor:
    module.pool[x[:, 0].long()] = x
    return x


def _write_expanded(module: Any, x: Tensor) -> Tensor:
    wide = module.pool[0].expand(x.size(0), 4)
    return x + wide.select(0, 0).add_(1)


def _write_row_numbers(module: Any, x: Tensor) -> Tensor:
    rows = torch.arange(x.size(0))
    rows.type_as(rows).sub_(1)
    return x[rows]


def _repeated_rows(module: Any, x: Tensor) -> Tensor:
    rows = torch.arange(x.size(0))[0].expand(x.size(0))
    return torch.zeros_like(x).index_put((rows,), x, accumulate=True)


def _write_undeclared_alias(module: Any, x: Tensor) -> Tensor:
    rows = torch.arange(x.size(0))
    torch.atleast_1d(rows[0]).sub_(1)
    return x[rows]


def _write_list(module: Any, x: Tensor) -> Tensor:
    rows = torch.arange(x.size(0))
    torch._foreach_sub_([rows[0]], 1)
    return x[rows]


# Names that rules of torch's own operators have, or a part of.
_LIBRARY = torch.library.Library("alias", "FRAGMENT")
_LIBRARY.define("center(Tensor x) -> Tensor")
_LIBRARY.define("sym_center(Tensor x, Tensor(a!) out) -> ()")
_LIBRARY.impl("center", lambda x: x - x.mean(0), "CPU")
_LIBRARY.impl("center", torch.empty_like, "Meta")
_LIBRARY.impl("sym_center", lambda x, out: out.copy_(x - x.mean(0)) and None, "CPU")
_LIBRARY.impl("sym_center", lambda x, out: None, "Meta")


def _center_in_place(module: Any, x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    torch.ops.alias.sym_center(x, out)
    return out * 1


def _falling(module: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, module.pool[: (x.size(0) + 20) // (x.size(0) + 1)] * 1


def _classes(x: Tensor) -> Tensor:
    return (x[:, :1] * 0).long()


_REFUSED: list[Any] = [
    pytest.param(
        lambda m, x: torch.zeros_like(x).scatter_(1, _classes(x), 1.0).sum(0), "reduces over", id="sum of scattered"
    ),
    pytest.param(
        lambda m, x: torch.zeros_like(x).index_copy(1, torch.tensor([0]), x[:, :1]).sum(0),
        "reduces over",
        id="sum of copied",
    ),
    pytest.param(_write_undeclared_alias, "writes rows that only filling", id="an alias that no schema declares"),
    pytest.param(_write_list, "writes rows that only filling", id="row numbers in a list"),
    pytest.param(lambda m, x: torch.ops.alias.center(x), "not known to keep rows apart", id="an operator of a user"),
    pytest.param(_center_in_place, "makes a number of rows", id="an operator of a user without a result"),
    pytest.param(_falling, "does not grow", id="a quotient that falls"),
    pytest.param(_repeated_rows, "into shared places", id="scatter by repeated numbers"),
    pytest.param(_write_row_numbers, "writes rows that only filling", id="row numbers changed through an alias"),
    pytest.param(lambda m, x: (x, m.pool[: 16 - x.size(0)] * 2), "does not grow", id="a result that gets smaller"),
    pytest.param(lambda m, x: x.long() % (x.long() - 1), "divides whole numbers", id="whole numbers divided by 0"),
    pytest.param(lambda m, x: x.sum(0), r"`aten.sum\.\w+` reduces over x.size\(0\)", id="sum over rows"),
    pytest.param(lambda m, x: x / x.size(0), "uses the size|as a number", id="size as a number"),
    pytest.param(lambda m, x: x[1:] + x[:-1], "takes a part of", id="neighbours"),
    pytest.param(lambda m, x: x.t() @ x, "sums over", id="gram matrix"),
    pytest.param(lambda m, x: torch.cat([x, m.pool]), "puts rows behind", id="rows behind rows"),
    pytest.param(lambda m, x: x + torch.randn_like(x), "random", id="random numbers"),
    pytest.param(lambda m, x: x[(x[:, 0] * 0).long()], "looks rows of x.size", id="rows by number"),
    pytest.param(lambda m, x: x.reshape(2, -1), "cuts or mixes", id="rows cut apart"),
    pytest.param(_write_pool, "write filling of", id="scatter into shared rows"),
    pytest.param(_write_expanded, "writes rows that only filling", id="write to an expanded buffer"),
]


@pytest.mark.parametrize(("function", "message"), _REFUSED)
def test_a_method_whose_rows_depend_on_each_other_is_refused_when_it_is_built(
    cache_dir: Path, function: Callable[..., Any], message: str
) -> None:
    cached = _padded(function, fill=1.0)
    with pytest.raises((GearSpecError, gearcache.CaptureError), match=message):
        cached(torch.rand(4, 4))
    assert cached.stats.compiles == 0


def test_a_written_buffer_does_not_mix_up_what_inputs_are_filled_with(cache_dir: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(5, 5, bias=False)
            self.register_buffer("calls", torch.zeros(1))

        def encode(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            first, total = self.linear(x[0]), x.sum(0)
            self.calls.add_(1)
            return first + total, mask * 2

    config = strict_config(on_miss="pad", pad_values={"x": 64.0, "mask": 0.0})
    gears = {"x": {0: [4, 8]}, "mask": {0: [4, 8]}}
    with pytest.raises(GearSpecError, match="reduces over"):
        gearcache.cache_compile(Counting().encode, config=config, gears=gears)(torch.rand(4, 5), torch.rand(4, 5))


def test_what_is_cut_out_of_a_padded_result_is_as_the_method_makes_it(cache_dir: Path) -> None:
    cached, bias = _padded(lambda m, x: ((x * 2)[:, 0], x * 3), dim=1), torch.nn.Parameter(torch.ones(3, 5))
    x = torch.randn(3, 5)
    first, whole = cached(x)
    assert torch.equal(first, x[:, 0] * 2)
    assert first.stride() == (5,)
    assert whole.add_(bias).requires_grad


def test_an_expanded_result_is_cut_and_memory_beside_a_row_is_not_read(cache_dir: Path) -> None:
    cached = _padded(lambda m, x: (x * 2).unsqueeze(0).expand(3, -1, -1), dim=1)
    x = torch.randn(4, 5)
    assert torch.equal(cached(x), (x * 2).expand(3, 4, 5))
    assert cached(x).stride() == (0, 5, 1)
    with pytest.raises((GearSpecError, UnknownGear), match="by strides"):
        _padded(lambda m, x: x[:, 0].as_strided((2,), (6,)) * 1, fill=7.0, dim=1)(torch.rand(3, 8))


def test_an_int_that_is_compared_with_a_padded_size_is_a_constant(cache_dir: Path) -> None:
    class Compared(torch.nn.Module):
        def run(self, x: Tensor, n: int) -> tuple[Tensor, int]:
            return (x * 2 if n < x.size(0) else x * 3), n + x.size(0)

    module = Compared()
    config = strict_config(on_miss="pad", pad_values={"x": 0.0})
    cached = gearcache.cache_compile(module.run, config=config, gears={"x": {0: [4, 8]}})
    for rows, n in ((4, 2), (4, 3), (3, 2), (3, 1), (5, 2), (3, 9)):
        x = torch.randn(rows, 2)
        found, expected = cached(x, n), module.run(x, n)
        assert torch.equal(found[0], expected[0])
        assert found[1] == expected[1]


def test_a_sum_over_filling_that_is_zero_is_served(cache_dir: Path) -> None:
    cached = _padded(lambda m, x: (x.t() @ x, (x != 0).any(0)), fill=0.0)
    for size in (3, 1, 8, 5):
        x = torch.randn(size, 4)
        torch.testing.assert_close(cached(x), (x.t() @ x, (x != 0).any(0)))


def test_batch_norm_in_training_is_refused_and_in_evaluation_padded(cache_dir: Path) -> None:
    def normalised(module: Any, x: Tensor) -> Tensor:
        return module.norm(x)  # type: ignore[no-any-return]

    with pytest.raises(GearSpecError, match="padded"):
        _padded(normalised)(torch.rand(4, 4))
    config = strict_config(on_miss="pad", pad_values={"x": 0.0})
    module = Module(normalised).eval()
    cached = gearcache.cache_compile(module.forward, config=config, gears={"x": {0: [4]}})
    x = torch.rand(3, 4)
    assert torch.allclose(cached(x), module(x))


#: What is computed in place, or might draw random numbers.
_IN_PLACE: dict[str, Callable[[Tensor], Any]] = {
    "relu6_": lambda x: F.relu6(x, inplace=True),
    "hardtanh_": lambda x: F.hardtanh(x, inplace=True),
    "hardswish_": lambda x: F.hardswish(x, inplace=True),
    "mish_": lambda x: F.mish(x, inplace=True),
    "threshold_": lambda x: F.threshold(x, 0.5, 2.0, inplace=True),
    "__iand__": lambda x: operator.iand(x > 0, x < 1),
    "__ior__": lambda x: operator.ior(x > 0, x < 1),
    "dropout_": lambda x: F.dropout(x, training=False, inplace=True),
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.5, False),
    "rrelu": lambda x: F.rrelu(x, training=False),
}


def test_activations_are_padded_in_place_too(cache_dir: Path) -> None:
    """One trace, and one proof for each."""

    def activated(x: Tensor) -> dict[str, Tensor]:
        return {name: function(x * 2 - 1) for name, function in _IN_PLACE.items()}

    cached = _padded(lambda module, x: activated(x))
    for rows in (3, 4, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(cached(x), activated(x))
    assert cached.stats.padded_calls == 2


@pytest.mark.parametrize(
    "drawing",
    [lambda x: F.dropout(x), lambda x: F.rrelu(x, training=True), lambda x: torch.feature_dropout(x, 0.5, True)],
)
def test_what_draws_random_numbers_is_not_padded(cache_dir: Path, drawing: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(gearcache.GearcacheError, match="draws random numbers"):
        _padded(lambda module, x: drawing(x))(torch.randn(3, 4))


@pytest.mark.parametrize("kind", sampled(["GRU", "LSTM", "RNN"], kept=("GRU",)))  # of the same operations
def test_examples_of_a_recurrent_batch_do_not_interact_and_positions_do(cache_dir: Path, kind: str) -> None:
    def run(module: Any, x: Tensor) -> Any:
        return module.layers(x.mT)

    def padded(dim: int) -> Any:
        config = strict_config(on_miss="pad", pad_values={"x": 0.0})
        return gearcache.cache_compile(module.forward, config=config, gears={"x": {dim: [4, 8]}})

    module = Module(run)
    module.layers = getattr(torch.nn, kind)(4, 4, 2, dropout=0.5, batch_first=True, bidirectional=True)
    with pytest.raises(GearSpecError, match="random"):
        padded(0)(torch.rand(4, 4, 3))
    module.eval()
    cached = padded(0)
    for size in (3, 1, 8, 5):
        x = torch.rand(size, 4, 3)
        for found, expected in zip(tree_leaves(cached(x)), tree_leaves(module(x)), strict=True):
            torch.testing.assert_close(found, expected)
    with pytest.raises((GearSpecError, UnknownGear), match="padded"):
        padded(2)(torch.rand(3, 4, 5))


_STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "scale": lambda x: x * 2 + 1,
    "sum_rows": lambda x: x - x.sum(0, keepdim=True),
    "softmax_rows": lambda x: x.softmax(0),
    "running_sum": lambda x: x.cumsum(0),
    "last": lambda x: x + x[-1],
    "gather": lambda x: x[torch.arange(x.size(0))],
    "reverse": lambda x: x.flip(0),
    "mean_size": lambda x: x / x.size(0),
    "flatten": lambda x: x.reshape(-1).reshape(x.size(0), 4),
    "fold": lambda x: x.view(x.size(0), 2, 2).transpose(1, 2).reshape(x.size(0), 4),
    "pairs": lambda x: x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, 4).view(x.size(0), 3, 4).sum(1),
    "outer": lambda x: (x @ x.t()).tril() @ x,
    "shift": lambda x: torch.cat([x[:1] * 0, x[:-1]]) + x,
    "in_place": lambda x: x.clone().add_(1).clamp_(max=3.0),
}


@pytest.mark.slow
@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(sorted(_STEPS)), min_size=1, max_size=4), size=st.integers(1, 7))
def test_what_the_proof_admits_never_depends_on_the_filling(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], size: int
) -> None:
    """Random chains: whatever is admitted gives what eager gives, for fillings that would show."""

    def chain(module: Any, x: Tensor) -> Tensor:
        for step in steps:
            x = _STEPS[step](x)
        return x

    x = torch.rand(size, 4)
    for fill in (0.0, 1e6):
        config = strict_config(on_miss="pad", pad_values={"x": fill})
        root = tmp_path_factory.mktemp("chain")
        cached = gearcache.cache_compile(Module(chain).forward, config=config, gears={"x": {0: [4, 8]}}, cache_dir=root)
        try:
            found = cached(x)
        except (GearSpecError, UnknownGear):
            return
        assert torch.allclose(found, chain(None, x), rtol=1e-5, atol=1e-5), (steps, size, fill)


def test_a_padded_call_is_checked_like_any_other(cache_dir: Path) -> None:
    config = strict_config(on_miss="pad", pad_values={"x": 0.0})
    cached = gearcache.cache_compile(Net().plain, config=config, gears={"x": {0: [4]}})
    for _ in range(2):
        cached(torch.randn(3, 4))
        with pytest.raises(InputError, match=r"of dtype torch\.float64"):
            cached(torch.randn(3, 4, dtype=torch.float64))
        with pytest.raises(UnknownGear, match=r"x\.size\(0\)=5; allowed: x\.size\(0\)=4"):
            cached(torch.randn(5, 4))
    assert cached.stats.gears == {"x.size(0)=4": 0, "x.size(0)=3": 2}


def test_a_written_input_that_overlaps_another_is_refused(cache_dir: Path) -> None:
    net = Net()
    config = strict_config(on_miss="pad", pad_values={"ids": 0, "cache.keys": 0.0})
    gears = {"ids": {0: [4]}, "cache.keys": {0: [4]}}
    cached = gearcache.cache_compile(net.decode, config=config, gears=gears)
    from types import SimpleNamespace

    memory = torch.zeros(100)
    keys = memory[:72].view(3, 6, 4)
    ids, position = torch.zeros(3, 1, dtype=torch.long), torch.tensor([0])
    cached(ids, position, SimpleNamespace(keys=keys))
    shared = keys.view(torch.int64).reshape(-1)[:3].reshape(3, 1).zero_()
    with pytest.raises(InputError, match="shares memory"):
        cached(shared, position, SimpleNamespace(keys=keys))


def test_a_padded_input_that_is_written_and_is_memory_of_a_weight_is_refused(cache_dir: Path) -> None:
    class Scaling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 4), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2) @ self.weight

    module = Scaling()
    config = strict_config(on_miss="pad", pad_values={"x": 0.0})
    cached = gearcache.cache_compile(module.forward, config=config, gears={"x": {0: [4]}})
    cached(torch.randn(3, 4))
    expected = copy.deepcopy(module)
    assert torch.equal(cached(module.weight[:4]), expected.forward(expected.weight[:4])), "no copy is written there"
    with pytest.raises(InputError, match="`x` is written, and shares memory with"):
        cached(module.weight[:3])
    assert torch.equal(module.weight, expected.weight)


def test_one_tensor_for_two_padded_arguments_is_served_and_keeps_no_other_call_from_padding(cache_dir: Path) -> None:
    class Scoring(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (x * y).sum(-1)

    config = strict_config(on_miss="pad", pad_values={"x": 0.0, "y": 0.0})
    cached = gearcache.cache_compile(Scoring().forward, config=config, gears={"x": {0: [2, 4]}, "y": {0: [2, 4]}})
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    assert torch.equal(cached(x, x), (x * x).sum(-1))
    assert torch.equal(cached(x, y), (x * y).sum(-1))
    assert torch.equal(cached(x[:3], y[:3]), (x * y).sum(-1)[:3])


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.slow
def test_a_padded_call_of_compiled_code_takes_ints_and_its_failure_is_a_graph_error(cache_dir: Path) -> None:
    class Dividing(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor, number: int) -> tuple[Tensor, int]:
            return x // y, number + 1

    config = strict_config("inductor", on_miss="pad", pad_values={"x": 1, "y": 1}, filling="vouched")
    gears = {"x": {0: [4]}, "y": {0: [4]}}
    cached = gearcache.cache_compile(Dividing().forward, config=config, gears=gears, dynamic=True)
    x, y = torch.tensor([7, 8, 9]), torch.tensor([2, 2, 2])
    for number in (1, 2, 5):
        quotients, following = cached(x, y, number)
        assert torch.equal(quotients, x // y)
        assert following == number + 1
    with pytest.raises(GraphError):
        cached(x, torch.zeros_like(y), 5)


def test_padded_calls_count_their_own_rows(cache_dir: Path) -> None:
    meter = Meter()
    config = strict_config(on_miss="pad", pad_values={"x": 0.0})
    cached = gearcache.cache_compile(meter.sizes, config=config, gears={"x": {0: [4]}})
    for size, rows in ((3, 5), (4, 13), (2, 17)):
        assert cached(torch.randn(size, 4))[1] == rows == meter.rows


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"x": 0.0}, r"pad_values fills x.size\(0\), and y.size\(0\) has to follow it"),
        ({"x": {1: 0.0}}, "pad_values names `x`, which has no dim that differs between gears"),
    ],
)
def test_every_padded_input_needs_a_value(cache_dir: Path, values: dict[str, Any], message: str) -> None:
    class Adder(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    config = strict_config(on_miss="pad", pad_values=values)
    cached = gearcache.cache_compile(Adder().forward, config=config, gears={"x": {0: [4]}, "y": {0: [4]}})
    with pytest.raises(GearSpecError, match=message):
        cached(torch.randn(3, 4), torch.randn(3, 4))


def test_padded_dims_are_in_the_key_and_values_are_not(cache_dir: Path) -> None:
    def entry(**options: Any) -> str:
        cached = gearcache.cache_compile(Net().plain, config=strict_config(**options), gears={"x": {0: [4]}})
        cached.warm(torch.randn(4, 4))
        return str(cached.entry_path)

    plain = entry()
    padded = entry(on_miss="pad", pad_values={"x": 0.0})
    assert padded != plain
    assert padded == entry(on_miss="pad", pad_values={"x": 1.0})


def test_a_branch_on_size_one_is_not_padded_over(cache_dir: Path) -> None:
    config = strict_config(on_miss="pad", pad_values={"x": 0.0})
    net = Net()
    cached = gearcache.cache_compile(net.one_is_special, config=config, gears={"x": {0: [4]}})
    x = torch.randn(3, 4)
    assert torch.equal(cached(x), x * 2)
    with pytest.raises(UnknownGear, match="does not serve a size of 1"):
        cached(torch.randn(1, 4))


@pytest.mark.parametrize(
    ("fill", "dtype"),
    [(0.5, torch.int64), (float("nan"), torch.int64), (float("inf"), torch.int64), (1e6, torch.float16)],
)
def test_a_value_that_the_dtype_cannot_hold_is_refused(cache_dir: Path, fill: float, dtype: torch.dtype) -> None:
    cached = _padded(lambda m, x: x * 2, fill=fill)
    with pytest.raises(GearSpecError, match=f"pad_values of `x` is {fill}, which a tensor of {dtype} cannot hold"):
        cached(torch.ones(3, 4, dtype=dtype))


def test_two_values_for_one_argument_are_refused(cache_dir: Path) -> None:
    config = strict_config(on_miss="pad", pad_values={"x[*]": {0: 0.0}, "x[0]": {1: 5.0}})
    module = Module(lambda m, x: x[0] * 2)
    cached = gearcache.cache_compile(module.forward, config=config, gears={"x[*]": {0: [4], 1: [4]}})
    with pytest.raises(GearSpecError, match=r"has 0\.0 and 5\.0 for `x\[0\]`"):
        cached([torch.ones(3, 3)])
