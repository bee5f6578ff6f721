"""Stretches of operations that come again are found by what they do, and never where a cut could change a result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from gearcache.ge_cache.graphs import repeats
from gearcache.ge_cache.graphs.functional import drop_aliases, give_values, write_anew
from gearcache.ge_cache.graphs.operations import Operations
from gearcache.ge_cache.graphs.repeats import Search

X = torch.randn(3, 8)


@pytest.fixture(autouse=True)
def _small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "LEAST_BYTES", 0)


def _operations(function: Callable[..., Any], inputs: list[Tensor], weights: list[Tensor]) -> Operations:
    """Record a function of inputs and weights; the weights become attributes, as a backend has them."""
    module = make_fx(function)(*inputs, *weights)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    attributes = []
    for number, (node, weight) in enumerate(zip(placeholders[len(inputs) :], weights, strict=True)):
        module.register_buffer(f"weight_{number}", weight)
        with module.graph.inserting_before(node):
            attribute = module.graph.get_attr(f"weight_{number}")
        node.replace_all_uses_with(attribute)
        module.graph.erase_node(node)
        attributes.append(attribute)
    mode = give_values(module, inputs)
    drop_aliases(module)
    write_anew(module, mode)
    return Operations(module.graph, attributes, lambda name: _content(module, name))


def _content(module: fx.GraphModule, name: str) -> tuple[Any, ...]:
    return tuple(module.get_buffer(name).reshape(-1).tolist())


def _layer(x: Tensor, weight: Tensor, scale: float = 0.5) -> Tensor:
    """Nine operations."""
    y = torch.tanh(x @ weight) * scale
    return x + y.sin().cos().exp().neg().abs()


def _counts(function: Callable[..., Any], weights: int = 6, *inputs: Tensor) -> list[tuple[int, int]]:
    operations = _operations(function, list(inputs or (X,)), [torch.randn(8, 8) for _ in range(weights)])
    return [(found.count, found.length) for found in Search(operations).stretches()]


def test_layers_are_found_with_what_stands_before_and_behind_them() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        x = x.exp().log1p()
        for weight in weights:
            x = _layer(x, weight)
        return x.softmax(-1).argmax(-1)

    assert _counts(model) == [(1, 2), (6, 9), (1, 2)]


def test_a_layer_with_another_constant_is_no_repeat() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        for number, weight in enumerate(weights):
            x = _layer(x, weight, 0.25 if number == 3 else 0.5)
        return x

    assert (6, 9) not in _counts(model)


def test_a_constant_tensor_of_another_value_is_another_operation() -> None:
    def model(values: list[float]) -> Callable[..., Tensor]:
        def run(x: Tensor, *weights: Tensor) -> Tensor:
            for weight, value in zip(weights, values, strict=True):
                x = _layer(x, weight) * torch.tensor([value] * 8)
            return x

        return run

    same, other = (
        [count for count, _ in _counts(model(values))] for values in ([2.0] * 6, [2.0, 2.0, 2.0, 3.0, 2.0, 2.0])
    )
    assert max(same) >= 5
    assert max(other) < 5


def test_weights_of_other_sizes_or_strides_end_a_repeat() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights:
            x = _layer(x, weight)
        return x

    for other in (torch.randn(8, 8).t(), torch.randn(8, 16)[:, ::2]):
        weights = [torch.randn(8, 8) if number != 6 else other for number in range(13)]
        found = Search(_operations(model, [X], weights)).stretches()
        assert max(stretch.count for stretch in found) == 6


@pytest.mark.parametrize("kind", ["a view of an input", "places by number", "nothing"])
def test_no_part_hands_on_what_shares_memory_with_what_is_written(kind: str) -> None:
    def model(x: Tensor, cache: Tensor, *weights: Tensor) -> Tensor:
        view, made, x = cache[:3], x * 2, x * 3
        upper = made[1:]
        for weight in weights:
            x = _layer(x, weight) + view + made
            if kind == "a view of an input":
                cache.add_(1)
            elif kind == "places by number":
                x = x + torch.as_strided(upper, (3, 8), (8, 1), 0)
        return x

    operations = _operations(model, [X.clone(), torch.randn(6, 8)], [torch.randn(8, 8) for _ in range(6)])
    search = Search(operations)
    most = max(stretch.count for stretch in search.stretches())
    assert most == (6 if kind == "nothing" else 1)
    assert ("share memory that the graph writes" in search.refused) == (kind != "nothing")


def _written_anew(function: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    module = make_fx(function, pre_dispatch=True)(*inputs)
    mode = give_values(module, inputs)
    drop_aliases(module)
    write_anew(module, mode)
    module.recompile()
    return module


def test_what_is_written_anew_gives_the_same_results() -> None:
    def model(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        a, b, c, d, e = x * 1, x * 2, x * 3, x * 4, (x > 0).to(torch.float16)
        view = b[1:]
        a += y
        before = a.sin()
        a.mul_(2).sub_(y)
        b.add_(1)
        c[0] = 5
        d.index_copy_(0, torch.tensor([1]), y[:1])
        e += x.double()
        x.add_(1)
        return a, before, b, view, c, d, e, x * 1

    inputs = (torch.randn(3, 8), torch.randn(3, 8))
    module = _written_anew(model, *inputs)
    theirs, ours = ([item.clone() for item in inputs] for _ in range(2))
    for found, expected in zip(module(*ours), model(*theirs), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(ours[0], theirs[0])
    kept = [
        node.target._schema.name for node in module.graph.nodes if getattr(node.target, "_schema", None) is not None
    ]
    mutable = [name for name in kept if name.endswith("_") and "detach" not in name]
    # `a` and `d` are written anew; `b` and `c` have views, `e` would have another dtype, `x` is the caller's.
    assert mutable == ["aten::add_", "aten::fill_", "aten::add_", "aten::add_"]


def test_a_conjugate_view_is_not_the_tensor_that_it_is_a_view_of() -> None:
    def model(x: Tensor) -> Tensor:
        return x.conj() + x

    module = make_fx(model)(torch.randn(3, dtype=torch.complex64))
    give_values(module, [torch.randn(3, dtype=torch.complex64)])
    before = len(module.graph.nodes)
    drop_aliases(module)
    assert len(module.graph.nodes) == before


def test_a_graph_in_which_nothing_can_be_cut_is_searched_in_a_moment() -> None:
    graph = fx.Graph()
    made = [graph.placeholder("x")]
    for number in range(1500):
        made.append(graph.call_function(torch.ops.aten.add.Tensor, (made[-1], made[number // 2])))
    graph.output([made[-1]])
    module = fx.GraphModule(torch.nn.Module(), graph)
    for node in graph.nodes:
        node.meta["val"] = torch.empty(3)
    begin = time.process_time()
    search = Search(Operations(module.graph, [], str))
    assert len(search.stretches()) == 1
    assert search.refused
    assert time.process_time() - begin < 20, "it took minutes"
