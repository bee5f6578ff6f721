"""Odd methods, arguments and results, as (method, calls, what a refusal has to name or nothing where none may come)."""

from __future__ import annotations

import decimal
import enum
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Holder:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.me = tensor, self


class Raising(nn.Module):
    """Methods that raise for some calls; here, as pytest rewrites the `assert` of its own files."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def value(self, x: Tensor) -> Tensor:
        self.seen.append(x.shape[0])
        if x.shape[0] > 2:
            raise ValueError(f"too long: {x.shape[0]}")
        return x + 1

    def asserted(self, x: Tensor) -> Tensor:
        assert x.shape[0] <= 2, "too long"
        return x + 1

    def key(self, x: Tensor, name: str = "b") -> Tensor:
        return {"a": x * 2}[name]

    def late(self, x: Tensor) -> Tensor:
        y = x + 1
        raise LookupError(f"of rank {y.dim()}")


class Quantized(torch.Tensor):
    """An int8 weight with a scale, as torchao has them."""

    @staticmethod
    def __new__(cls, values: Tensor, scale: Tensor) -> Quantized:
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype)

    def __init__(self, values: Tensor, scale: Tensor) -> None:
        self.values_, self.scale = values, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values_", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: Any) -> Quantized:
        return Quantized(inner["values_"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = args[0]
        if function is torch.ops.aten.detach.default:
            return Quantized(first.values_, first.scale)
        if function is torch.ops.aten.t.default:
            return Quantized(first.values_.t(), first.scale)
        plain = [item.values_ * item.scale if isinstance(item, Quantized) else item for item in args]
        return function(*plain, **(kwargs or {}))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.count: Any = 0
        self.price = decimal.Decimal("1.5")
        self.text, self.nan = "a\ud800b", float("nan")
        self.quantized = nn.Linear(4, 4)
        values = (self.quantized.weight.detach() * 10).to(torch.int8)
        self.quantized.weight = nn.Parameter(Quantized(values, torch.tensor(0.1)), requires_grad=False)

    def no_input(self) -> Tensor:
        return self.linear.weight * 2

    def no_operation(self, x: Tensor) -> int:
        return 3

    def decimals(self, x: Tensor) -> Tensor:
        return x * float(self.price)

    def counts(self, x: Tensor, n: Any) -> Tensor:
        self.count = n
        return x + 1

    def reads_text(self, x: Tensor) -> Tensor:
        return x + len(self.text)

    def takes(self, x: Tensor, value: Any) -> Tensor:
        return x + 1

    def times(self, x: Tensor, value: Any) -> Tensor:
        return x * value

    def sized(self, x: Tensor, value: Any) -> Tensor:
        return x + len(value)

    def chosen(self, x: Tensor, color: Color) -> Tensor:
        return x + 1 if color is Color.RED else x - 1

    def held(self, value: Any) -> Tensor:
        return value.tensor + 1

    def first(self, values: Any) -> Tensor:
        while not isinstance(values, Tensor):
            values = values[0]
        return values + 1

    def remainder(self, x: Tensor, n: int) -> tuple[Tensor, int]:
        return x + n % 7, n + 1

    def not_a_number(self, x: Tensor) -> tuple[Tensor, float, float]:
        return x * self.nan, float("nan"), -0.0

    def doubles(self, x: Tensor) -> Tensor:
        return x * 2

    def dense(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(x, self.linear.weight)

    def dequantized(self, x: Tensor) -> Tensor:
        return x.dequantize() + 1

    def from_numpy(self, value: Any) -> Tensor:
        return torch.from_numpy(value) + 1

    def as_set(self, x: Tensor) -> set[int]:
        self.linear(x)
        return {1, 2}

    def as_lambda(self, x: Tensor) -> Any:
        y = x + 1
        return lambda: y

    def strict(self, x: Tensor) -> Tensor:
        if x.shape[0] > 3:
            raise ValueError("too long")
        return x + 1

    def catches(self, x: Tensor) -> Tensor:
        try:
            return x + self.missing
        except AttributeError:
            return x - 1

    def embeds(self, x: Tensor) -> Tensor:
        return nn.functional.embedding(x, self.linear.weight)

    def two(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def quantized_weight(self, x: Tensor) -> Tensor:
        return self.quantized(x)


def nested() -> Any:
    value: Any = X
    for _ in range(2000):
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
    "no operation": (Net.no_operation, [(X,)], ""),
    "decimal attribute": (Net.decimals, [(X,)], "Recursion|Decimal"),
    "decimal argument": (Net.takes, [(X, decimal.Decimal("2.5")), (X, decimal.Decimal("3"))], ""),
    "attribute of many types": (Net.counts, [(X, n) for n in (1, 2, "a", None, 2.5, [1], True, (1, 2), "a")], ""),
    "surrogate in an attribute": (Net.reads_text, [(X,)], "surrogate"),
    "surrogate in an argument": (Net.sized, [(X, "a\udfff")], "surrogate"),
    "enum": (Net.chosen, [(X, Color.RED), (X, Color.BLUE), (X, Color.RED)], ""),
    "object that holds itself": (Net.held, [(Holder(X),), (Holder(X * 2),)], ""),
    "list that holds itself": (Net.first, [(endless(X),), (endless(X * 2),)], ""),
    "deeper list": (Net.first, [(nested(),)], "[Rr]ecursion"),
    "bytes": (Net.sized, [(X, b"ab"), (X, b"abc")], ""),
    "bytearray": (Net.sized, [(X, bytearray(b"ab"))], "bytearray"),
    "huge int": (Net.remainder, [(X, 10**30), (X, 10**30 + 1), (X, 2**63), (X, -(2**64))], ""),
    "huge factor": (Net.times, [(X, 2**63 - 1), (X, 2**64)], ""),
    "not a number": (Net.not_a_number, [(X,), (X,)], ""),
    "floats": (Net.times, [(X, value) for value in (float("nan"), float("inf"), -0.0, 0.0, 1 + 2j)], ""),
    "numpy scalar": (Net.times, [(X, np.float32(2))], "NumPy"),
    "numpy array": (Net.from_numpy, [(np.ones((3, 4)),)], "NumPy"),
    "unused numpy array": (Net.takes, [(X, np.ones(2)), (X, np.ones(2))], ""),
    "scalar tensor": (Net.doubles, [(torch.tensor(3.0),), (torch.tensor(4.0),), (X,)], ""),
    "no elements": (Net.doubles, [(torch.empty(0, 4),), (torch.empty(0, 4),), (X,)], ""),
    "complex after real": (Net.doubles, [(X,), (X + 2j,), (X,)], ""),
    "meta after real": (Net.doubles, [(X,), (X.to("meta"),)], "meta"),
    "sparse": (Net.dense, [(X.to_sparse(),)], "sparse"),
    "quantized": (Net.dequantized, [(QUANTIZED,)], "quantized"),
    "mkldnn": (Net.doubles, [(X.to_mkldnn(),)], "mkldnn"),
    "jagged": (Net.doubles, [(JAGGED,)], "subclass"),
    "quantized weight": (Net.quantized_weight, [(X,), (X * 2,)], ""),
    "set": (Net.as_set, [(X,), (X,)], ""),
    "lambda": (Net.as_lambda, [(X,)], "constant|frame|value of its own"),
    "raises": (Net.strict, [(torch.ones(5, 4),), (X,)], ""),
    "catches": (Net.catches, [(X,), (X,)], ""),
    "bad index": (Net.embeds, [(torch.tensor([1]),), (torch.tensor([9]),), (torch.tensor([2]),)], ""),
    "missing argument": (Net.two, [(X,), (X, X), (X,), (X, X, X)], ""),
}
