"""What a process may do while a lookup stays a hit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.support.staleness.change import double, hit, removed, variable


@hit("run")
def other_weights(model: Any, net: Any) -> Iterator[None]:
    for parameter in net.parameters():
        parameter.data.normal_()
    yield


@hit("environment")
def a_variable_that_the_method_does_not_read(model: Any, net: Any) -> Iterator[None]:
    with variable("GEARCACHE_TEST_UNREAD", "1"):
        yield


@hit("run")
def no_grad(model: Any, net: Any) -> Iterator[None]:
    with torch.no_grad():
        yield


@hit("run")
def a_hook_on_a_child_that_the_method_does_not_call(model: Any, net: Any) -> Iterator[None]:
    with removed(net.block.register_forward_hook(double)):
        yield


@hit("run")
def parameters_tied_where_the_method_does_not_reach(model: Any, net: Any) -> Iterator[None]:
    net.block.norm.weight = net.linear.bias
    yield


@hit("run")
def evaluation_mode_that_nothing_reads(model: Any, net: Any) -> Iterator[None]:
    net.eval()
    yield


@hit("tensors")
def other_values_of_tensors_everywhere(model: Any, net: Any) -> Iterator[None]:
    model.TENSOR = torch.randn(4)
    with torch.no_grad():
        model.PARAMETER.normal_()
    net.pieces[1] = torch.randn(4)
    net.plain.weight = torch.randn(4)
    yield


@hit("functions")
def a_function_replaced_by_an_equal_one(model: Any, net: Any) -> Iterator[None]:
    model.closure = model.made_by(3.0)
    yield
