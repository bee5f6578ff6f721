"""Numbers of a call become tensors that all graphs share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode

from gearcache.ge_cache.private_torch.fake import fake_mode
from gearcache.guards.dispatch.tensors import number_tensors
from gearcache.guards.dispatch.tensors.number_tensors import NumberTensors


@pytest.mark.parametrize("number", [0, 2**63 - 1, -(2**63)])
def test_a_number_is_a_tensor_of_one_int64(number: int) -> None:
    with torch.inference_mode():
        made = NumberTensors()[number]
    assert (made.dtype, made.shape, made.item()) == (torch.int64, (1,), number)
    assert not made.is_inference()


@pytest.mark.parametrize("within", [fake_mode, FunctionalTensorMode])
def test_a_number_that_is_first_met_within_a_trace_is_an_ordinary_tensor(within: Callable[[], Any]) -> None:
    with within():
        made = NumberTensors()[5]
    assert type(made) is torch.Tensor
    assert made.item() == 5


def test_threads_get_their_own_numbers_of_which_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_tensors, "_MOST", 2)
    tensors = NumberTensors()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: tensors[n % 5].item(), range(4000))) == [n % 5 for n in range(4000)]
    assert tensors[7] is tensors[7]
    assert len(tensors) <= 2
    with pytest.raises(OverflowError):
        tensors[2**63]
