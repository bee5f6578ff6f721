"""Gears of a method behind `functools.wraps` and `*args, **kwargs`, by the method's own names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


def with_self(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs)

    return wrapper


def with_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return wrapper


class Net(nn.Module):
    def run(self, ids: Tensor, mask: Tensor | None = None, *, scale: Tensor | None = None) -> Tensor:
        found = ids * 2 if mask is None else ids * mask
        return found if scale is None else found * scale

    twice = with_self(with_nothing(run))


X = torch.arange(8.0).view(2, 4)
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "by place": ((X, X + 1), {}),
    "by name": ((), {"ids": X, "mask": X + 1}),
    "both": ((X,), {"mask": X + 1, "scale": X}),
}


def test_gears_are_found_however_the_call_gives_the_argument(cache_dir: Path) -> None:
    net = Net()
    for launch in range(2):
        cached = gearcache.cache_compile(
            net.twice, gears={"ids": {0: [2, 4]}, "mask": {0: [2, 4]}}, config=strict_config()
        )
        for args, kwargs in [*CALLS.values(), *CALLS.values()]:
            torch.testing.assert_close(cached(*args, **kwargs), net.run(*args, **kwargs))
        assert cached.stats.calls == 6
        assert (cached.stats.traces == 0) == bool(launch)
        with pytest.raises(gearcache.UnknownGear, match="=3"):
            cached(ids=torch.ones(3, 4), mask=torch.ones(3, 4))
