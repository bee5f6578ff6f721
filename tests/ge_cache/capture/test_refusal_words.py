"""Refusals: the message says what it is, of the method or of what other tools made of it, and what to do instead."""

from __future__ import annotations

import collections
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gearcache
from gearcache.errors import CaptureError, UncacheableGuard
from tests.support.scenarios import strict_config


def test_the_module_of_an_exported_program_is_refused_with_the_way_out(cache_dir: Path) -> None:
    x = torch.ones(2, 4)
    module = torch.export.export(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (x,)).module()
    cached = gearcache.cache_compile(module.forward, config=strict_config())
    with pytest.raises(UncacheableGuard, match="cache the method of the model that it was made from"):
        cached(x)


def test_a_generator_is_named_with_the_way_out(cache_dir: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            return x + torch.rand(x.shape, generator=generator)

    cached = gearcache.cache_compile(Net().forward, config=strict_config())
    with pytest.raises(gearcache.CaptureError, match=r"draws from a `torch\.Generator`"):
        cached(torch.ones(2), torch.Generator())


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_a_lock_is_refused_until_what_it_guards_is_set_up(kind: Any, cache_dir: Path) -> None:
    class Net(nn.Module):
        lock = kind()
        table: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.table is None:
                with self.lock:
                    self.table = torch.arange(2.0)
            return x + self.table

    net, x = Net(), torch.ones(2)
    cached = gearcache.cache_compile(net.forward, config=strict_config())
    with pytest.raises(CaptureError, match=r"it enters a lock, .*: .* call the method itself once before"):
        cached(x)
    expected = net(x)
    assert torch.equal(cached(x), expected)
    assert cached.stats.loads == 1


def test_a_module_of_torchscript_is_refused_where_it_is_reached(cache_dir: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scripted = nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 4))

        def without(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)

        def through(self, x: torch.Tensor) -> torch.Tensor:
            return self.scripted(x)

    net, x = Net(), torch.ones(2, 4)
    without = gearcache.cache_compile(net.without, config=strict_config())
    assert torch.equal(without(x), net.linear(x))
    assert without.stats.traces == 1
    with pytest.raises(
        CaptureError, match=r"'scripted'\]`, a module of TorchScript, .*: use the module that it was made"
    ):
        gearcache.cache_compile(net.through, config=strict_config())(x)


class DecoratedBase(nn.Linear):
    @gearcache.cache_compile(config=gearcache.CompilerConfig(backend="eager"))
    def step(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x)


class DecoratedAgain(DecoratedBase):
    @gearcache.cache_compile(config=gearcache.CompilerConfig(backend="eager"))
    def step(self, x: torch.Tensor) -> torch.Tensor:
        return super().step(x) * 2


def test_a_call_of_the_decorated_method_of_a_base_class_is_refused_with_the_way_out(cache_dir: Path) -> None:
    with pytest.raises(CaptureError, match=r"`cache_compile` decorates too: decorate one of the two only; File "):
        DecoratedAgain(4, 4).step(torch.ones(2, 4))


STEPS = {"first": 1, "second": 2}


def tell(x: torch.Tensor) -> torch.Tensor:
    print("no graph")
    return x * 2


class Reached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = collections.deque([1, 2], maxlen=3)

    def of_told(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(tell(x))

    def of_helper(self, x: torch.Tensor) -> torch.Tensor:
        return count(self, x)

    def of_set(self, x: torch.Tensor) -> torch.Tensor:
        for name in set(STEPS):
            x = x * 2 + STEPS[name]
        return x

    def at_end(self, x: torch.Tensor) -> torch.Tensor:
        return x * (hash("a") % 5)


def count(net: Reached, x: torch.Tensor) -> torch.Tensor:
    return x + len(net.last)


@pytest.mark.parametrize(
    ("method", "place"),
    [
        ("of_told", rf'`print`.*File ".*test_refusal_words.py", line {tell.__code__.co_firstlineno + 1}, in tell'),
        ("of_helper", r"by a slice; File .*test_refusal_words.*, in count: `return x \+ len\(net\.last\)`"),
        ("of_set", r"a list or a dict; File .*, in of_set: `for name in set\(STEPS\):`"),
        ("at_end", r"as a key; File .*, in at_end: `return x \* \(hash\("),
    ],
)
def test_the_line_is_named_that_a_trace_was_at(method: str, place: str, cache_dir: Path) -> None:
    cached = gearcache.cache_compile(getattr(Reached(), method), config=strict_config())
    with pytest.raises(CaptureError, match=place):
        cached(torch.ones(2, 4))
