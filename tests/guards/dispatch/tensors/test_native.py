"""The C checks of torch behave as the dispatch relies on: one test each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch

from gearcache.guards.dispatch.tensors.inference_tensors import remade
from gearcache.guards.dispatch.tensors.native import (
    decorating_context,
    dispatch_state,
    first_size,
    inference_mode,
    state_check,
    tensor_check,
    tensor_kind,
)

GOOD = torch.ones(2, 4)


@pytest.fixture
def check() -> Callable[..., bool]:
    return tensor_check([torch.ones(5, 4), torch.ones(3)], [[None, 4], [3]], [[4, 1], [1]])


def test_tensors_of_the_given_sizes_pass(check: Callable[..., bool]) -> None:
    assert check(GOOD, torch.ones(3))
    assert check(torch.ones(7, 4), torch.ones(3))


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(torch.ones(2, 4, dtype=torch.float64), id="dtype"),
        pytest.param(torch.ones(2, 4, device="meta"), id="device"),
        pytest.param(torch.ones(2, 5), id="size"),
        pytest.param(torch.ones(4, 2).t(), id="stride"),
        pytest.param(torch.ones(2, 4, 1), id="rank"),
        pytest.param(torch.ones(2, 4, requires_grad=True), id="requires grad"),
        pytest.param(torch.nn.Parameter(torch.ones(2, 4), requires_grad=False), id="type"),
        pytest.param(torch.ones(2, 4).to_sparse(), id="layout"),
    ],
)
def test_any_other_tensor_fails(check: Callable[..., bool], bad: torch.Tensor) -> None:
    assert not check(bad, torch.ones(3))


def test_what_is_no_tensor_fails(check: Callable[..., bool]) -> None:
    for bad in (None, 1, [1.0]):
        with contextlib.suppress(TypeError):
            assert not check(bad, torch.ones(3))


def test_the_same_tensor_twice_fails() -> None:
    check = tensor_check([torch.ones(3), torch.ones(3)], [[3], [3]], [[1], [1]])
    x = torch.ones(3)
    assert check(x, x.clone())
    assert not check(x, x)


def test_the_global_state_is_compared_with_that_at_the_start() -> None:
    check = state_check()
    assert check()
    with torch.no_grad():
        assert not check()
        assert state_check()()
    with torch.autocast("cpu"):
        assert not check()
    torch.set_default_dtype(torch.float64)
    try:
        assert not check()
    finally:
        torch.set_default_dtype(torch.float32)
    assert check()


def test_the_global_state_does_not_tell_inference_mode_but_the_dispatch_state_does() -> None:
    with torch.no_grad():
        check, outside = state_check(), dispatch_state()
    with torch.inference_mode():
        assert check()
        assert dispatch_state() != outside
    with torch.no_grad():
        assert dispatch_state() == outside


def test_the_kind_of_a_tensor_is_what_the_check_takes_from_it() -> None:
    with torch.inference_mode():
        inference = torch.ones(3)
    others = [inference, torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3), requires_grad=False)]
    plain = torch.ones(3)
    assert tensor_kind(plain) == tensor_kind(torch.zeros(5))
    check = tensor_check([plain], [[3]], [[1]])
    assert check(torch.zeros(3))
    for other in others:
        assert tensor_kind(other) != tensor_kind(plain)
        assert not check(other)


def test_inference_mode_is_entered_and_left() -> None:
    with inference_mode(True):
        assert torch.ones(2).is_inference()
        with inference_mode(False):
            assert not torch.ones(2).is_inference()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("is_inference", [True, False])
def test_a_tensor_remade_has_the_same_memory_and_the_kind_that_was_wanted(is_inference: bool) -> None:
    with inference_mode(not is_inference):
        tensor = torch.arange(12.0).reshape(3, 4).t()[1:]
    made = remade(tensor, is_inference)
    assert made.is_inference() == is_inference
    assert (made.data_ptr(), made.stride(), made.dtype) == (tensor.data_ptr(), tensor.stride(), tensor.dtype)
    assert torch.equal(made, tensor)
    assert remade(made, is_inference) is made


def test_a_grad_mode_decorator_gives_its_context_away() -> None:
    def plain() -> None: ...

    assert isinstance(decorating_context(torch.no_grad()(plain)), torch.no_grad)
    assert isinstance(decorating_context(torch.no_grad(plain)), torch.no_grad)
    assert decorating_context(torch.inference_mode(False)(plain)).mode is False
    assert decorating_context(torch.set_grad_enabled(True)(plain)).mode is True
    assert decorating_context(plain) is None
    assert torch.is_grad_enabled()


def test_the_first_size_is_that_of_dim_0_and_refuses_what_is_no_tensor() -> None:
    assert first_size(torch.ones(3, 2)) == 3
    assert first_size(torch.ones(())) == 0
    for value in ([1], None):
        with pytest.raises(TypeError):
            first_size(value)
