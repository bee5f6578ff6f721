"""Classes whose instances share entries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import gearcache

CONFIG = gearcache.CompilerConfig(backend="eager", strict=True)


class Base(nn.Module):
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("shift", torch.randn(4))
        self.cached: Any = None

    def method(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2 + self.shift

    @gearcache.cache_compile(config=CONFIG)
    def run(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2 + self.shift


class Derived(Base):
    def run(self, x: Tensor) -> Tensor:
        return super().run(x) + 100


class Twice(Base):
    """Overrides a decorated method by a decorated one, and uses both."""

    @gearcache.cache_compile(config=CONFIG)
    def run(self, x: Tensor) -> Tensor:
        return self.linear(x) * 3 - self.shift

    def both(self, x: Tensor) -> Tensor:
        under: Tensor = super().run(x)
        return self.run(x) * 10 + under


def twice_again() -> type[Base]:
    """Return a class of the same name as its base, with a decorated method of the same name."""

    class Twice(globals()["Twice"]):  # type: ignore[misc, name-defined]
        @gearcache.cache_compile(config=CONFIG)
        def run(self, x: Tensor) -> Tensor:
            return self.linear(x) * 7 + super().run(x)  # type: ignore[no-any-return, misc]

    Twice.__qualname__ = "Twice"
    return Twice
