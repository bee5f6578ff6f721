"""What type checkers make of `cache_compile`; checked by mypy, never run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from typing_extensions import assert_type

import gearcache
from gearcache.telemetry.stats import Stats
from gearcache.telemetry.suggest import SuggestedGears


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.served = gearcache.cache_compile(self.run)

    def run(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x

    @gearcache.cache_compile(gears={"x": {0: [2, 4]}})
    def decorated(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x, 1

    @gearcache.cache_compile
    def bare(self, x: torch.Tensor) -> None: ...


model, x = Model(), torch.ones(2)
cached = gearcache.cache_compile(model.run, dynamic=None)
assert_type(cached(x, scale=2.0), torch.Tensor)
assert_type(cached.stats, Stats)
assert_type(cached.stats.hits, int)
assert_type(cached.explain(), str)
assert_type(cached.suggest_gears(4), SuggestedGears)
assert_type(cached.entry_path, str | None)
cached.warm(x)
cached.warm()
assert_type(cached.set_inputs(gearcache.TensorSpec((gearcache.Symbol(), 2), torch.float32)), None)
cached.refresh()
assert_type(model.served(x), torch.Tensor)
assert_type(model.decorated(x), tuple[torch.Tensor, int])
assert_type(model.decorated.stats, Stats)
model.decorated.warm(x)
model.bare(x)


def serve(method: gearcache.CachedMethod[[torch.Tensor], torch.Tensor]) -> gearcache.Stats:
    assert_type(method(x), torch.Tensor)
    assert_type(method.stats.refused_calls, int)
    assert_type(method.stats.to_dict(), dict[str, Any])
    return method.stats


serve(model.run)  # type: ignore[arg-type]
if isinstance(model.bare, gearcache.CachedMethod):
    model.bare.refresh()
assert_type(gearcache.set_dim_gears(torch.ones(2), {0: [2, 4]}), None)
assert_type(gearcache.CompilerConfig().backend, str)
cached("text")  # type: ignore[arg-type]
cached.warm("text")  # type: ignore[call-overload]
cached.warmed()  # type: ignore[attr-defined]
model.decorated(1)  # type: ignore[arg-type]
gearcache.cache_compile(model.run, unknown=1)  # type: ignore[call-overload]
gearcache.cache_compile(model.run, dynamic=1)  # type: ignore[call-overload]
