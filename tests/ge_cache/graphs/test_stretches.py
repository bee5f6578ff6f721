"""Stretches of operations that come again are found by what they do, and never where a cut could change a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from gearcache.ge_cache.graphs.operations import Operations, drop_aliases, give_values
from gearcache.ge_cache.graphs.repeats import externals_of, outputs_of, stretches
from gearcache.ge_cache.graphs.stretch import Stretch

X = torch.randn(3, 8)


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
    give_values(module, inputs)
    drop_aliases(module)
    return Operations(module.graph, attributes, lambda name: _content(module, name))


def _content(module: fx.GraphModule, name: str) -> tuple[Any, ...]:
    return tuple(module.get_buffer(name).reshape(-1).tolist())


def _layer(x: Tensor, weight: Tensor, scale: float = 0.5) -> Tensor:
    """Nine operations."""
    y = torch.tanh(x @ weight) * scale
    return x + y.sin().cos().exp().neg().abs()


def _counts(function: Callable[..., Any], weights: int = 6, *inputs: Tensor) -> list[tuple[int, int]]:
    operations = _operations(function, list(inputs or (X,)), [torch.randn(8, 8) for _ in range(weights)])
    return [(found.count, found.length) for found in stretches(operations)]


def test_layers_are_found_with_what_stands_before_and_behind_them() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        x = x.exp().log1p()
        for weight in weights:
            x = _layer(x, weight)
        return x.softmax(-1).argmax(-1)

    assert _counts(model) == [(1, 2), (6, 9), (1, 2)]


def test_two_kinds_of_layers_are_two_repeats() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights[:6]:
            x = _layer(x, weight)
        x = x.mean(0, keepdim=True).expand(3, 8).contiguous()
        for weight in weights[6:]:
            x = (torch.relu(x @ weight.t()).sqrt() + x).sigmoid().mul(2.0).sub(1.0)
        return x

    assert [count for count, _ in _counts(model, 12)] == [6, 1, 6]


@pytest.mark.parametrize("odd", range(6))
def test_a_layer_with_another_constant_is_no_repeat(odd: int) -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        for number, weight in enumerate(weights):
            x = _layer(x, weight, 0.25 if number == odd else 0.5)
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


def test_an_int_is_no_float_and_no_bool() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        for number, weight in enumerate(weights):
            x = _layer(x, weight) * (2, 2.0)[number % 2]
        return x

    assert max(count for count, _ in _counts(model)) == 3


def test_layers_that_take_their_input_from_elsewhere_are_no_repeats() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        seen = [x]
        for number, weight in enumerate(weights):
            taken = seen[-1] if number != 3 else seen[-2]
            seen.append(_layer(taken, weight) + seen[-1])
        return seen[-1]

    assert max(count for count, _ in _counts(model)) < 6


def test_a_tensor_used_twice_is_not_two_tensors() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        for number in range(0, 12, 2):
            second = weights[number] if number == 6 else weights[number + 1]
            x = _layer(x, weights[number]) @ second
        return x

    assert max(count for count, _ in _counts(model, 12)) < 6


def test_weights_of_other_sizes_or_strides_end_a_repeat() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights:
            x = _layer(x, weight)
        return x

    for other in (torch.randn(8, 8).t(), torch.randn(8, 16)[:, ::2]):
        weights = [torch.randn(8, 8) if number != 6 else other for number in range(13)]
        found = stretches(_operations(model, [X], weights))
        assert max(stretch.count for stretch in found) == 6


def test_caches_that_layers_write_in_place_are_inputs_of_their_steps() -> None:
    caches = [torch.randn(3, 8) for _ in range(6)]

    def model(x: Tensor, *others: Tensor) -> Tensor:
        for cache, weight in zip(others[:6], others[6:], strict=True):
            cache.add_(x)
            x = _layer(x, weight) + cache.view(-1).view(3, 8)
        return x

    operations = _operations(model, [X, *caches], [torch.randn(8, 8) for _ in range(6)])
    (found,) = stretches(operations)
    assert found.count == 6
    # The first layer takes `x` and its cache; the cache that it has written is no result of it.
    assert len(externals_of(operations, found.start, found.length)) == 3
    assert len(outputs_of(operations, found)) == 1


@pytest.mark.parametrize("kind", ["the hidden tensor", "a view of an input", "what was made before", "nothing"])
def test_no_part_hands_on_what_shares_memory_with_what_is_written(kind: str) -> None:
    def model(x: Tensor, cache: Tensor, *weights: Tensor) -> Tensor:
        view, made, x = cache[:3], x * 2, x * 3
        for weight in weights:
            if kind == "a view of an input":
                x = _layer(x, weight) + view
                cache.add_(1)
            elif kind == "what was made before":
                x = _layer(x, weight) + made
                made.mul_(0.5)
            elif kind == "the hidden tensor":
                x.add_(_layer(x, weight) + 1)
            else:
                x = _layer(x, weight) + view
        return x

    most = max(count for count, _ in _counts(model, 6, X.clone(), torch.randn(6, 8)))
    assert most == (6 if kind == "nothing" else 1)


def test_a_conjugate_view_is_not_the_tensor_that_it_is_a_view_of() -> None:
    def model(x: Tensor) -> Tensor:
        return x.conj() + x

    module = make_fx(model)(torch.randn(3, dtype=torch.complex64))
    give_values(module, [torch.randn(3, dtype=torch.complex64)])
    before = len(module.graph.nodes)
    drop_aliases(module)
    assert len(module.graph.nodes) == before


def test_what_gives_back_its_argument_is_left_out() -> None:
    module = make_fx(lambda x: torch.ops.aten.alias(x).detach().sin(), pre_dispatch=True)(X)
    give_values(module, [X])
    drop_aliases(module)
    assert [str(node.target) for node in module.graph.nodes if node.op == "call_function"] == ["aten.sin.default"]


def test_a_short_repeat_is_not_worth_a_cut() -> None:
    def model(x: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights:
            x = x @ weight
        return x

    assert _counts(model, 20) == [(1, 20)]


def test_a_graph_of_many_operations_is_searched_in_a_moment() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    for number in range(6000):
        x = graph.call_function(torch.ops.aten.add.Scalar, (x, number % 7 if number < 3000 else number))
    graph.output([x])
    module = fx.GraphModule(torch.nn.Module(), graph)
    for node in graph.nodes:
        node.meta["val"] = torch.empty(3)
    found = stretches(Operations(module.graph, [], str))
    assert Stretch(0, 7, 428) in found or found[0].count * found[0].length >= 2990
