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

    def by_mode(self, x: Tensor) -> Tensor:
        return x * 2 if self.training else x * 3

    @gearcache.cache_compile(config=CONFIG)
    def run(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2 + self.shift


class Derived(Base):
    def run(self, x: Tensor) -> Tensor:
        return super().run(x) + 100
