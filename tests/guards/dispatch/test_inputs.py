"""What a call's tensors are checked for, and the words for one that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gearcache.guards.access import Access
from gearcache.guards.dispatch.inputs import find_problem
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput
from gearcache.guards.dispatch.tensors.native import tensor_check

INPUTS = [
    StoredInput(Access(("argument", "x")), torch.float32, "cpu"),
    StoredInput(Access(("argument", "cache"), (("attr", "keys"),)), torch.float32, "cpu"),
]


def _gear(sizes: list[Any], strides: list[Any], assumed: list[list[int]] | None = None) -> StoredGear:
    return StoredGear("x.size(0)=2", sizes, strides, [], {}, {}, assumed=assumed or [])


GEAR = _gear([[2, 4], [3]], [[4, 1], [1]])
GOOD = (torch.ones(2, 4), torch.ones(3))


@pytest.mark.parametrize(
    ("bad", "kind", "found", "allowed"),
    [
        pytest.param(lambda: 3.0, "structure", "a float", "a tensor", id="no tensor"),
        pytest.param(lambda: torch.ones(3, dtype=torch.int64), "dtype", "torch.int64", "torch.float32", id="dtype"),
        pytest.param(lambda: torch.ones(3, device="meta"), "device", "meta", "cpu", id="device"),
        pytest.param(lambda: torch.ones(3, requires_grad=True), "grad", "requires grad", "no_grad", id="grad"),
        pytest.param(lambda: torch.ones(3).to_sparse(), "layout", "sparse", "dense", id="layout"),
        pytest.param(lambda: torch.ones(3, 1), "rank", "rank 2", "rank 1", id="rank"),
        pytest.param(lambda: torch.ones(5), "shape", "(5,)", "(3,)", id="shape"),
        pytest.param(lambda: torch.ones(6)[::2], "stride", "(2,)", "(1,)", id="stride"),
        pytest.param(
            lambda: torch.ones(3, dtype=torch.complex64).conj().imag, "layout", "lazy", "resolve", id="negative"
        ),
    ],
)
def test_each_difference_is_named_and_fails_the_check(
    bad: Callable[[], Any], kind: str, found: str, allowed: str
) -> None:
    gear = _gear([[2, 4], [3]], [[4, 1], [2]]) if kind == "layout" and found == "lazy" else GEAR
    tensors = (GOOD[0], bad())
    problem = find_problem(INPUTS, gear, tensors)
    assert problem is not None
    assert (problem.argument, problem.kind) == ("cache.keys", kind)
    assert found in problem.value
    assert allowed in problem.allowed
    if isinstance(tensors[1], torch.Tensor):
        assert not tensor_check(GOOD, gear.sizes, gear.strides)(*tensors)


@pytest.mark.parametrize(
    ("shapes", "is_assumption"),
    [
        pytest.param(((2, 4), (5,)), True, id="the assumed dim"),
        pytest.param(((3, 4), (5,)), False, id="another dim as well"),
        pytest.param(((3, 4), (3,)), False, id="another dim"),
    ],
)
def test_a_problem_tells_whether_only_assumed_dims_differ(shapes: Any, is_assumption: bool) -> None:
    gear = _gear([[2, 4], [3]], [[4, 1], [1]], assumed=[[1, 0]])
    problem = find_problem(INPUTS, gear, tuple(torch.ones(shape) for shape in shapes))
    assert problem is not None
    assert problem.is_assumption is is_assumption
