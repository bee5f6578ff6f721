"""Refusals: the message says what it is, of the method or of what other tools made of it, and what to do instead."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest
import torch
from torch import nn

import gearcache
from gearcache.errors import CaptureError, UncacheableGuard
from tests.scenarios import own_state
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


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("assigned_data", r"assigns to the `\.data` of `self\.weight`, which has other memory then; assign a tensor"),
        ("new_parameter", r"torch\.nn\.Parameter\(\)` constructor"),
    ],
)
def test_what_no_frame_can_replay_is_refused_with_a_way_out(method: str, words: str, cache_dir: Path) -> None:
    cached = gearcache.cache_compile(getattr(own_state.Net(), method), config=strict_config())
    with pytest.raises(CaptureError, match=words):
        cached(torch.ones(2, 4))


class Offset(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x - float(y.storage_offset()), x + y.itemsize, x.norm()


def test_a_method_that_computes_with_a_storage_offset_is_refused(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Offset().forward, config=strict_config())
    with pytest.raises(CaptureError, match=r"offset|returned non-Tensor"):
        cached(torch.ones(3, 4), torch.ones(4, 4)[1:])


STEPS = {"first": 1, "second": 2}


class Reached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = collections.deque([1, 2], maxlen=3)

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
        ("of_helper", r"by a slice; File .*test_refusal_words.*, in count: `return x \+ len\(net\.last\)`"),
        ("of_set", r"a list or a dict; File .*, in of_set: `for name in set\(STEPS\):`"),
        ("at_end", r"as a key; File .*, in at_end: `return x \* \(hash\("),
    ],
)
def test_the_line_is_named_that_a_trace_was_at(method: str, place: str, cache_dir: Path) -> None:
    cached = gearcache.cache_compile(getattr(Reached(), method), config=strict_config())
    with pytest.raises(CaptureError, match=place):
        cached(torch.ones(2, 4))


class OfTorch(nn.Module):
    def sampled(self, x: torch.Tensor) -> torch.Tensor:
        return torch.distributions.Categorical(logits=x).sample()

    def branched(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # type: ignore[no-any-return]

    def repeated(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.sum())):
            x = x + 1
        return x


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("sampled", r"checks its parameters in code without a trace: pass `validate_args=False`"),
        (
            "branched",
            r"a graph inside a graph, for `cond`, which cannot be stored: branch or repeat outside the method",
        ),
        ("repeated", r"the values of a tensor decide what it does \(`TruncToInt\(.*\)`\): pass it as an int"),
    ],
)
def test_a_construct_of_torch_is_named_with_the_way_out(
    method: str, words: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `torch.compile`, which another test may have used, turns it off.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    cached = gearcache.cache_compile(getattr(OfTorch(), method), config=strict_config())
    with pytest.raises(CaptureError, match=words):
        cached(torch.ones(2, 4))
