"""Results of compiled graphs lie in memory as those of eager do, whatever Inductor takes an operator apart into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import gearcache
from gearcache.ge_cache.inductor.result_strides import order_of, put_in_order, result_orders
from tests.support.sampled import sampled


class Net(torch.nn.Module):
    def run(self, x: torch.Tensor) -> list[torch.Tensor]:
        joined = torch.cat([x])
        return [joined, torch.cat([x.permute(2, 0, 1)]).relu(), x + 1, torch.cat([joined, joined], 1).transpose(0, 2)]


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.parametrize("dynamic", sampled([False, True], [True]))
def test_results_have_the_strides_of_eager(dynamic: bool, tmp_path: Path) -> None:
    """What a caller does with them, such as `.view(-1)`, works or fails as it does in eager."""
    net = Net()
    config = gearcache.CompilerConfig(backend="inductor", strict=True)
    cached: Any = gearcache.cache_compile(net.run, dynamic=dynamic, config=config, cache_dir=tmp_path)
    x = torch.randn(5, 4, 3).transpose(0, 2)
    for found, expected in zip(cached(x), net.run(x), strict=True):
        assert found.stride() == expected.stride()
        assert torch.equal(found, expected)
    assert cached(x)[0].view(-1).shape == (60,)


@pytest.mark.parametrize(
    ("tensor", "order"),
    [
        (torch.empty(2, 3, 4), [0, 1, 2]),
        (torch.empty(2, 3, 4).permute(2, 0, 1), [1, 2, 0]),
        (torch.empty(()), []),
        (torch.empty(2, 3).expand(4, 2, 3), None),
        (torch.empty(2, 4)[:, ::2], None),
        (torch.empty(0, 3), None),
        (None, None),
    ],
)
def test_the_order_of_a_tensor_is_that_of_its_dims_in_memory(tensor: Any, order: list[int] | None) -> None:
    assert order_of(tensor) == order


def test_only_results_in_another_order_are_copied() -> None:
    def graph_of(function: Any) -> Any:
        return make_fx(function, tracing_mode="fake")(torch.empty(2, 3).t())

    recorded = graph_of(lambda x: [x.contiguous() * 2, x + 1])
    lowered = graph_of(lambda x: [x * 2, x + 1])
    assert result_orders(recorded) == [[0, 1], [1, 0]]
    put_in_order(lowered, result_orders(recorded))
    copies = [node for node in lowered.graph.nodes if node.target is torch.ops.aten.clone.default]
    assert len(copies) == 1
    x = torch.randn(2, 3).t()
    assert [result.stride() for result in lowered(x)] == [(2, 1), (1, 3)]
    assert torch.equal(lowered(x)[0], x * 2)
    before = lowered.code
    put_in_order(lowered, [[0, 1]])  # of another graph
    assert lowered.code == before


class Copies(torch.nn.Module):
    def run(self, x: torch.Tensor) -> list[torch.Tensor]:
        once = x + 0
        return [x + torch.zeros(3), once.view(3, 1), x * 1, x - 0, x / 1, x * torch.ones(3), once]


@pytest.mark.usefixtures("compiled_here")
def test_a_sum_with_zero_is_no_input(tmp_path: Path) -> None:
    """Inductor takes `x + torch.zeros(3)` for `x`, and from torch 2.14 on `x + 0` too: eager makes another tensor."""
    net, x = Copies(), torch.tensor([1.0, -0.0, 3.0])
    config = gearcache.CompilerConfig(backend="inductor", strict=True)
    cached: Any = gearcache.cache_compile(net.run, config=config, cache_dir=tmp_path)
    found, expected = cached(x), net.run(x)
    assert len({each.data_ptr() for each in (x, *found)}) == len({each.data_ptr() for each in (x, *expected)}) == 7
    x.mul_(2)
    assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    assert [each.signbit().tolist() for each in found] == [each.signbit().tolist() for each in expected]
