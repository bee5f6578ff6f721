"""Odd methods and calls: each is served as eager serves it, fails as it fails there, or is refused by name."""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import (
    GearcacheError,
    InputError,
    NoOperation,
    PreparationError,
    UnsupportedMethod,
)
from tests.support.compared import assert_same
from tests.support.scenarios import strict_config

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


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        with torch.no_grad():
            return call(), None
    except Exception as error:
        return None, error


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_an_odd_call_is_right_or_refused_by_name(name: str, cache_dir: Path) -> None:
    method, calls, words = CASES[name]
    net, twin = Net(), Net()
    cached = gearcache.cache_compile(getattr(net, method.__name__), config=strict_config())
    refused = []
    for arguments in calls:
        found, error = outcome(functools.partial(cached, *arguments))
        if isinstance(error, GearcacheError):
            assert not isinstance(error, PreparationError), error
            refused.append(str(error))
            continue
        expected, expected_error = outcome(functools.partial(getattr(twin, method.__name__), *arguments))
        assert (type(error), str(error)) == (type(expected_error), str(expected_error))
        assert_same(found, expected)
        assert_same(net.count, twin.count)
    assert bool(refused) == bool(words), refused
    for text in refused:
        assert "Net." in text
        assert re.search(words, text), text


class Kinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def plain(self, x: Tensor, factor: float = 1.0) -> Tensor:
        return torch.relu(self.linear(x)) * factor

    def items(self, x: Tensor) -> Any:
        yield self.linear(x)

    @classmethod
    def of_class(cls, x: Tensor) -> Tensor:
        return x + 1

    @property
    def value(self) -> Tensor:
        return self.linear.weight

    partial = functools.partialmethod(plain, factor=2.0)


@pytest.mark.parametrize(
    "take, words",
    [
        (lambda net: net.items, "generator.*method of its own"),
        (lambda net: net.of_class, "Kinds.*make it a method"),
        (lambda net: net.value, "property was read"),
        (lambda net: net.partial, "arguments filled in"),
        (lambda net: torch.compile(net, backend="eager").forward, "torch.compile"),
        (lambda net: staticmethod(net.plain), "make it a method"),
        (lambda net: net, "a method, not a module"),
    ],
)
def test_what_is_no_method_of_a_module_is_refused_with_what_to_do(take: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(UnsupportedMethod, match=words):
        gearcache.cache_compile(take(Kinds()))


@pytest.mark.parametrize("strict", [False, True])
def test_an_unexpected_exception_is_ours_or_the_method_runs_uncached(
    strict: bool, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("nobody thought of this")

    net = Kinds()
    config = gearcache.CompilerConfig(backend="eager", strict=strict)
    cached = gearcache.cache_compile(net.plain, config=config)
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr("gearcache.serving.find.binding.Binding.prepare", fail)
        for _ in range(5):
            if strict:
                with pytest.raises(PreparationError, match=r"Kinds.plain.*ZeroDivisionError: nobody.*report"):
                    cached(X)
            else:
                assert torch.equal(cached(X), net.plain(X))
    if not strict:
        (record,) = [record for record in caplog.records if "nobody thought" in record.getMessage()]
        assert record.levelname == "WARNING"
    cached.refresh()
    with torch.no_grad():
        assert torch.equal(cached(X), net.plain(X))
    assert cached.stats.traces == 1


def test_a_call_without_an_operation_is_served_by_the_method_beside_the_graphs_of_others(
    cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Blocks(torch.nn.Module):
        def run(self, x: torch.Tensor, times: int) -> dict[str, Any]:
            for _ in range(times):
                x = x * 2
            return {"x": (x,), "times": times}

    module = Blocks()
    for launch in range(2):
        cached = gearcache.cache_compile(module.run, config=strict_config())
        for times in (0, 2, 0):
            found, expected = cached(X, times), module.run(X, times)
            assert torch.equal(found["x"][0], expected["x"][0])
            assert found["times"] == times
        assert cached.stats.eager_reasons == {"no operation": 2}
        assert cached.stats.compiles == (0 if launch else 1)
    assert caplog.text.count("there is nothing to compile") == 2
    with pytest.raises(NoOperation):
        cached.warm(X, 0)
    report = gearcache.prewarm(lambda: cached.warm(X, 0), cache_dir=cache_dir)
    (row,) = report.entries
    assert (row.failed, len(row.impossible), report.is_complete) == ({}, 1, True)


def test_writing_a_weight_made_in_inference_mode_and_given_other_data_is_refused(cache_dir: Path) -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def compute(self, x: Tensor) -> None:
            self.weight.data.copy_(x[0])

    with torch.inference_mode():
        net = Writing()
    net.weight.data = torch.zeros(8)[::2]
    cached = gearcache.cache_compile(net.compute, config=strict_config())
    for mode in (torch.inference_mode, torch.no_grad):
        with mode(), pytest.raises(InputError, match=r"weight.*given another `\.data`"):
            cached(X)
    assert net.weight.tolist() == [0.0] * 4
