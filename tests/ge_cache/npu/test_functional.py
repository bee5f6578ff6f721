"""Functional graphs for torchair, and the operators that are decomposed for it: equal to eager, without torch_npu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gearcache.ge_cache.aten import encode_graph
from gearcache.ge_cache.compile_job import CompileJob, GearInput
from gearcache.ge_cache.npu.functional import FunctionalGraph, functional_graph

aten = torch.ops.aten


def functional(function: Callable[..., Any], *inputs: Tensor) -> FunctionalGraph:
    from torch.fx.experimental.proxy_tensor import make_fx

    module = make_fx(lambda *tensors: [function(*tensors)], pre_dispatch=True)(*(item.clone() for item in inputs))
    specs = [GearInput(tuple(item.shape), item.stride(), item.dtype, item.device) for item in inputs]
    return functional_graph(CompileJob("m", "g", encode_graph("m", module), specs, {}, {}, 1), {})


def targets(graph: FunctionalGraph) -> list[Any]:
    return [node.target for node in graph.module.graph.nodes if node.op == "call_function"]


ROWS = torch.tensor([2, 0, 3])
CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "index_copy, last dim": (
        lambda x, i, s: aten.index_copy(x, -1, i, s),
        (torch.randn(2, 4), ROWS, torch.randn(2, 3)),
    ),
    "index_put, rows": (lambda x, i, s: x.index_put((i,), s), (torch.randn(4, 3), ROWS, torch.randn(3, 3))),
    "index_put, negative": (lambda x, i: x.index_put((i - 4,), torch.ones(3)), (torch.randn(4, 3), ROWS)),
    "index_put, accumulate": (
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        (torch.randn(4), torch.tensor([1, 1, 0]), torch.ones(3)),
    ),
    "amax": (lambda x: x.amax((0, 2), keepdim=True) + x.amax(), (torch.randn(2, 3, 4),)),
    "attention": (torch.nn.functional.scaled_dot_product_attention, tuple(torch.randn(1, 2, 4, 8) for _ in range(3))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_decomposed_operator_equals_eager(name: str) -> None:
    function, inputs = CASES[name]
    graph = functional(function, *inputs)
    (found,) = graph.module(*inputs)
    assert torch.allclose(found, function(*inputs), atol=1e-6)
    unconverted = {aten.index_put.default, aten.index_copy.default, aten.amax.default}
    assert not unconverted & set(targets(graph))
    assert not [target for target in targets(graph) if "flash" in str(target)]
