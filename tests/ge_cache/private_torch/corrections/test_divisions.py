"""Divisions of numbers that vary: rounded twice they are not one division, and by zero they raise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.sampled import sampled
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def twice(self, y: Tensor, n: int) -> Any:
        return n // 2 // -2, n // -2 // -2, divmod(n // 2, -3), (n // 2 + 1) % 3, y + 1

    def slices(self, y: Tensor, n: int) -> Any:
        return y[: n // 2 // -2], y[: y.size(0) // 2 // -2], y[-(n // 2 // -2)]

    def by_a_number(self, y: Tensor, n: int) -> Any:
        return n // 3 // (n - 20), y + n // 2 // (n - 9)

    def by_itself(self, y: Tensor, n: int) -> Any:
        return y + n % n + n // n + 0 // n


METHODS = [name for name, value in vars(Net).items() if callable(value)]


# None: a static trace, and dynamic ones once sizes and ints have changed, as with True.
@pytest.mark.parametrize("dynamic", sampled([True, None, False], [None]))
@pytest.mark.parametrize("name", METHODS)
def test_divisions_are_those_of_python(name: str, dynamic: bool | None, cache_dir: Path) -> None:
    for _ in ("cold", "relaunched"):
        method = getattr(Net(), name)
        cached: Any = gearcache.cache_compile(method, config=strict_config(), dynamic=dynamic)
        for n in (5, 7, -3, 0, 30, 9):
            y = torch.arange(9.0)
            try:
                expected = method(y, n)
            except (ZeroDivisionError, IndexError) as error:
                with pytest.raises(type(error)):
                    cached(y, n)
            else:
                torch.testing.assert_close(cached(y, n), expected, rtol=0, atol=0)
