"""Odd methods, arguments and results, as (method, calls, what a refusal has to name or nothing where none may come)."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

X = torch.linspace(-1, 1, 12).reshape(3, 4)


@dataclasses.dataclass(frozen=True)
class Frozen:
    tensor: Tensor
    factor: int = 2


class Holder:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.me = tensor, self


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.count: Any = 0

    def no_input(self) -> Tensor:
        return self.linear.weight * 2

    def number(self, n: int) -> Tensor:
        return self.linear.weight * n

    def grows(self, x: Tensor) -> Tensor:
        self.count = self.count + 1 if isinstance(self.count, int) and self.count < 2 else "many"
        return x + 1

    def times(self, x: Tensor, value: Any) -> Tensor:
        return x * value

    def sized(self, x: Tensor, value: Any) -> Tensor:
        return x + len(value)

    def held(self, value: Any) -> Tensor:
        return value.tensor + 1

    def remainder(self, x: Tensor, n: int) -> tuple[Tensor, int]:
        return x + n % 7, n + 1

    def doubles(self, x: Tensor) -> Tensor:
        return x * 2

    def dense(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(x, self.linear.weight)

    def as_object(self, x: Tensor) -> Frozen:
        return Frozen(x + 1)

    def embeds(self, x: Tensor) -> Tensor:
        return nn.functional.embedding(x, self.linear.weight)

    def two(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


with warnings.catch_warnings():  # old kinds of tensors, still met
    warnings.simplefilter("ignore")
    JAGGED = torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged)

#: Name -> method, arguments of each call, and the words of a refusal ("" where every call has to be served).
CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], str]] = {
    "no input": (Net.no_input, [(), ()], ""),
    "a number only": (Net.number, [(1,), (2,), (1,)], ""),
    "attribute that changes type": (Net.grows, [(X,)] * 5, ""),
    "surrogate in an argument": (Net.sized, [(X, "a\udfff")], "surrogate"),
    "object that holds itself": (Net.held, [(Holder(X),), (Holder(X * 2),)], ""),
    "bytearray": (Net.sized, [(X, bytearray(b"ab"))], "bytearray"),
    "huge int": (Net.remainder, [(X, 10**30), (X, 10**30 + 1), (X, 2**63), (X, -(2**64))], ""),
    "floats": (Net.times, [(X, value) for value in (float("nan"), -0.0, 0.0)], ""),
    "numpy scalar": (Net.times, [(X, np.float32(2))], "NumPy"),
    "numpy array": (Net.times, [(X, np.ones(4))], "NumPy"),
    "no elements": (Net.doubles, [(torch.empty(0, 4),), (torch.empty(0, 4),), (X,)], ""),
    "meta after real": (Net.doubles, [(X,), (X.to("meta"),)], "meta"),
    "sparse": (Net.dense, [(X.to_sparse(),)], "sparse"),
    "jagged": (Net.doubles, [(JAGGED,)], "subclass"),
    "object": (Net.as_object, [(X,), (X,)], ""),
    "bad index": (Net.embeds, [(torch.tensor([1]),), (torch.tensor([9]),), (torch.tensor([2]),)], ""),
    "missing argument": (Net.two, [(X,), (X, X), (X,), (X, X, X)], ""),
}
