"""Odd methods, arguments and results, as (method, calls, what a refusal has to name or nothing where none may come)."""

from __future__ import annotations

import dataclasses
import decimal
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


class Raising(nn.Module):
    """Its method raises for some calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def value(self, x: Tensor) -> Tensor:
        self.seen.append(x.shape[0])
        if x.shape[0] > 2:
            raise ValueError(f"too long: {x.shape[0]}")
        return x + 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.count: Any = 0
        self.price = decimal.Decimal("1.5")
        self.text, self.huge = "a\ud800b", 10**40

    def no_input(self) -> Tensor:
        return self.linear.weight * 2

    def number(self, n: int) -> Tensor:
        return self.linear.weight * n

    def nothing(self, x: Tensor) -> None:
        self.linear(x)

    def decimals(self, x: Tensor) -> Tensor:
        return x * float(self.price)

    def counts(self, x: Tensor, n: Any) -> Tensor:
        self.count = n
        return x + 1

    def grows(self, x: Tensor) -> Tensor:
        self.count = self.count + 1 if isinstance(self.count, int) and self.count < 2 else "many"
        return x + 1

    def reads_text(self, x: Tensor) -> Tensor:
        return x + len(self.text)

    def takes(self, x: Tensor, value: Any) -> Tensor:
        return x + 1

    def times(self, x: Tensor, value: Any) -> Tensor:
        return x * value

    def sized(self, x: Tensor, value: Any) -> Tensor:
        return x + len(value)

    def held(self, value: Any) -> Tensor:
        return value.tensor + 1

    def first(self, values: Any) -> Tensor:
        while not isinstance(values, Tensor):
            values = values[0]
        return values + 1

    def remainder(self, x: Tensor, n: int) -> tuple[Tensor, int]:
        return x + n % 7, n + 1

    def big(self, x: Tensor) -> Tensor:
        return x + self.huge % 7

    def doubles(self, x: Tensor) -> Tensor:
        return x * 2

    def dense(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(x, self.linear.weight)

    def dequantized(self, x: Tensor) -> Tensor:
        return x.dequantize() + 1

    def as_set(self, x: Tensor) -> set[int]:
        self.linear(x)
        return {1, 2}

    def as_object(self, x: Tensor) -> Frozen:
        return Frozen(x + 1)

    def as_lambda(self, x: Tensor) -> Any:
        y = x + 1
        return lambda: y

    def catches(self, x: Tensor) -> Tensor:
        try:
            return x + self.missing
        except AttributeError:
            return x - 1

    def embeds(self, x: Tensor) -> Tensor:
        return nn.functional.embedding(x, self.linear.weight)

    def two(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def nested(depth: int) -> Any:
    value: Any = X
    for _ in range(depth):
        value = [value]
    return value


def endless(value: Any) -> list[Any]:
    found: list[Any] = [value]
    found.append(found)
    return found


with warnings.catch_warnings():  # old kinds of tensors, still met
    warnings.simplefilter("ignore")
    QUANTIZED = torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)
    JAGGED = torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged)

#: Name -> method, arguments of each call, and the words of a refusal ("" where every call has to be served).
CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], str]] = {
    "no input": (Net.no_input, [(), ()], ""),
    "a number only": (Net.number, [(1,), (2,), (1,)], ""),
    "returns nothing": (Net.nothing, [(X,), (X,)], ""),
    "decimal attribute": (Net.decimals, [(X,)], "Recursion|Decimal"),
    "attribute of many types": (Net.counts, [(X, n) for n in (1, 2, "a", None, 2.5, [1], True, (1, 2), "a")], ""),
    "attribute that changes type": (Net.grows, [(X,)] * 5, ""),
    "surrogate in an attribute": (Net.reads_text, [(X,)], "surrogate"),
    "surrogate in an argument": (Net.sized, [(X, "a\udfff")], "surrogate"),
    "frozen dataclass": (Net.held, [(Frozen(X),), (Frozen(X * 2, 3),)], ""),
    "object that holds itself": (Net.held, [(Holder(X),), (Holder(X * 2),)], ""),
    "list that holds itself": (Net.first, [(endless(X),), (endless(X * 2),)], ""),
    "deeper list": (Net.first, [(nested(2000),)], "[Rr]ecursion"),
    "bytearray": (Net.sized, [(X, bytearray(b"ab"))], "bytearray"),
    "huge int": (Net.remainder, [(X, 10**30), (X, 10**30 + 1), (X, 2**63), (X, -(2**64))], ""),
    "huge attribute": (Net.big, [(X,), (X,)], ""),
    "floats": (Net.times, [(X, value) for value in (float("nan"), float("inf"), -0.0, 0.0, 1 + 2j)], ""),
    "numpy scalar": (Net.times, [(X, np.float32(2))], "NumPy"),
    "unused numpy array": (Net.takes, [(X, np.ones(2)), (X, np.ones(2))], ""),
    "no elements": (Net.doubles, [(torch.empty(0, 4),), (torch.empty(0, 4),), (X,)], ""),
    "complex after real": (Net.doubles, [(X,), (X + 2j,), (X,)], ""),
    "meta": (Net.doubles, [(X.to("meta"),)], ""),
    "meta after real": (Net.doubles, [(X,), (X.to("meta"),)], "meta"),
    "sparse": (Net.dense, [(X.to_sparse(),)], "sparse"),
    "quantized": (Net.dequantized, [(QUANTIZED,)], "quantized"),
    "mkldnn": (Net.doubles, [(X.to_mkldnn(),)], "mkldnn"),
    "jagged": (Net.doubles, [(JAGGED,)], "subclass"),
    "set": (Net.as_set, [(X,), (X,)], ""),
    "object": (Net.as_object, [(X,), (X,)], ""),
    "lambda": (Net.as_lambda, [(X,)], "constant|frame|value of its own"),
    "catches": (Net.catches, [(X,), (X,)], ""),
    "bad index": (Net.embeds, [(torch.tensor([1]),), (torch.tensor([9]),), (torch.tensor([2]),)], ""),
    "missing argument": (Net.two, [(X,), (X, X), (X,), (X, X, X)], ""),
}
