"""Cached methods that a model keeps elsewhere than in attributes of its own, and ranks that agree on such a model."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import gearcache
from gearcache.errors import GearcacheError
from tests.support.rank_actors import TWO_BY_FOUR, Job, Net, agree, cached, config

#: Where a method is kept that takes part, and where one may only not compile by itself.
NEAR = ("list", "dict", "partial", "module in a list")
FAR = ("closure", "object", "made later", "base class")


class Base(Net):
    """A decorated method that the subclass overrides."""

    @gearcache.cache_compile(config=config(), input_signature=(TWO_BY_FOUR,))
    def encode(self, x: Tensor) -> Tensor:
        return x * 3


class Kept(Base):
    """One declared method in an attribute, and others elsewhere; `methods` tells where each is."""

    def __init__(self) -> None:
        super().__init__()
        cached(self, "first")
        part = Net()
        cached(part, "decode")
        listed, named, bound = (self.made(self.decode) for _ in range(3))
        hidden, held = (self.made(self.far) for _ in range(2))
        self.kept = [[listed], {"decode": [named]}, functools.partial(bound), [part]]
        self.not_seen = [lambda: hidden, SimpleNamespace(method=held)]
        near: list[Any] = [listed, named, bound, part.decode]
        self.methods = lambda: (
            dict(zip(NEAR, near, strict=True))
            | dict(zip(FAR, [hidden, held, self.made(self.far), super(Kept, self).encode], strict=True))
        )

    def made(self, method: Any) -> Any:
        return gearcache.cache_compile(method, config=config(), input_signature=(TWO_BY_FOUR,))

    def far(self, x: Tensor) -> Tensor:
        return x - 1

    def first(self, x: Tensor) -> Tensor:
        return x + 2

    def encode(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


def kept(job: Job, rank: int, report: dict[str, Any]) -> None:
    """Agree on a model with methods kept elsewhere; note how each first call ends, and whether it compiled nothing."""
    model = Kept()
    report["agreed"] = agree(model, job.timeout)
    for where, method in model.methods().items():
        before = method.stats.compiles
        try:
            method(torch.ones(2, 4))
            called = "served"
        except GearcacheError as error:
            called = type(error).__name__
        report[where] = [called, method.stats.compiles == before]
