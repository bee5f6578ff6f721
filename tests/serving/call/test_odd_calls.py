"""Odd methods and calls: each is served as eager serves it, fails as it fails there, or is refused by name."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from tests.scenarios.odd_calls import CASES, Net, X
from tests.support.scenarios import strict_config


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        with torch.no_grad():
            return call(), None
    except Exception as error:
        return None, error


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, Tensor):
        if expected.is_meta:
            assert found.shape == expected.shape
        else:
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    elif isinstance(expected, tuple):
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    elif dataclasses.is_dataclass(expected):
        assert_same(tuple(vars(found).values()), tuple(vars(expected).values()))
    else:
        assert repr(found) == repr(expected)


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
