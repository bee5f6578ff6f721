"""Cached methods that a model keeps elsewhere than in attributes of its own, and ranks that agree on such a model."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import gearcache
from gearcache.errors import GearcacheError
from gearcache.ranks.agree import agree
from tests.support.rank_actors import TWO_BY_FOUR, Job, Net, cached, config

#: Where a method is kept that takes part, and where one may only not compile by itself.
NEAR = ("list", "dict", "tuple", "partial", "module in a list")
FAR = ("closure", "object", "module in an object", "made later", "base class")


class Base(Net):
    """A decorated method that the subclass overrides."""

    @gearcache.cache_compile(config=config(), input_signature=(TWO_BY_FOUR,))
    def encode(self, x: Tensor) -> Tensor:
        return x * 3


class Part(Net):
    """A part of a model; nothing is stored of its method before."""


class Kept(Base):
    """One declared method in an attribute, and another one elsewhere; `get` returns that."""

    def __init__(self, where: str) -> None:
        super().__init__()
        cached(self, "first")
        other = Net() if where in NEAR else Part()
        make = functools.partial(self._make, self.decode if where in NEAR else self.far)
        if where.startswith("module in"):
            cached(other, "decode")
            self.kept: Any = [other] if where == "module in a list" else SimpleNamespace(part=other)
            self.get: Any = lambda: other.decode
        elif where == "base class":
            self.get = lambda: super(Kept, self).encode
        elif where == "made later":
            self.get = functools.cache(make)
        else:
            method = make()
            kinds = {
                "list": [method],
                "dict": {"decode": [method]},
                "tuple": (method,),
                "partial": functools.partial(method),
                "closure": lambda: method,
                "object": SimpleNamespace(method=method),
            }
            self.kept = kinds[where]
            self.get = lambda: method

    def _make(self, method: Any) -> Any:
        return gearcache.cache_compile(method, config=config(), input_signature=(TWO_BY_FOUR,))

    def far(self, x: Tensor) -> Tensor:
        return x - 1

    def first(self, x: Tensor) -> Tensor:
        return x + 2

    def encode(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


class Undeclared(Net):
    """A decorated method of whose calls nobody knows, beside a declared one."""

    @gearcache.cache_compile(config=config())
    def encode(self, x: Tensor) -> Tensor:
        return x * 3


def kept(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Agree on models with methods kept elsewhere; note how the first call ends, and whether it compiled nothing."""
    for where in (*NEAR, *FAR):
        model = Kept(where)
        agreed = agree(model, job.timeout)
        method = model.get()
        before = method.stats.compiles
        try:
            method(torch.ones(2, 4))
            called = "served"
        except GearcacheError as error:
            called = type(error).__name__
        report[where] = [agreed, called, method.stats.compiles == before]


def undeclared_in_class(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Agree on a model with a decorated method that is not declared."""
    model = Undeclared()
    cached(model, "decode")
    agree(model, job.timeout)
