"""What type checkers make of `cache_compile`; checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from typing_extensions import assert_type

import gearcache


class Model(nn.Module):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @gearcache.cache_compile(gears={"x": {0: [2, 4]}})
    def decorated(self, x: torch.Tensor) -> torch.Tensor:
        return x


model = Model()
assert_type(gearcache.cache_compile(model.run), Any)
assert_type(gearcache.cache_compile(), Callable[[Callable[..., Any]], Any])
assert_type(gearcache.set_dim_gears(torch.ones(2), {0: [2, 4]}), None)
assert_type(gearcache.CompilerConfig().backend, str)
gearcache.cache_compile(model.run, unknown=1)  # type: ignore[call-overload]
gearcache.cache_compile(model.run, dynamic=1)  # type: ignore[call-overload]
