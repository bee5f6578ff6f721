"""What an interrupt leaves on torch's stacks of modes does not outlive the turn in which it struck."""

from __future__ import annotations

import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gearcache.ge_cache.capture.turns import turn


class Functions(TorchFunctionMode):
    """Torch's recorder has such a mode."""


class Operators(TorchDispatchMode):
    """And such ones, besides fake tensors."""


def test_modes_that_an_interrupt_leaves_are_gone_after_the_turn() -> None:
    with contextlib.suppress(KeyboardInterrupt), turn():
        for mode in (Functions(), FakeTensorMode(), Operators()):
            mode.__enter__()
        raise KeyboardInterrupt
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0
    assert type(torch.nn.Linear(2, 2).weight.data) is torch.Tensor
    assert torch.ones(2).tolist() == [1.0, 1.0]


def test_modes_of_the_caller_stay() -> None:
    with Functions(), Operators():
        with turn():
            pass
        assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 1
