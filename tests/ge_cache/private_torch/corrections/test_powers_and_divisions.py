"""Numbers that vary: powers of negative ones, for which torch's code of a graph has no brackets; shifts; divisions.

Rounded twice, divisions are not one division, and by zero they raise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base, self.n = -2, 3

    def of_a_tensor(self, x: Tensor, n: int) -> Tensor:
        return (-2) ** x + (-2.5) ** x.long() + self.base**x

    def of_an_int_that_is_an_index(self, x: Tensor, n: int) -> Tensor:
        return x[:, n] + n * n**2 + (n - 5) ** 2 * -(n**2) + pow(n, 3)

    def by_a_shift(self, x: Tensor, n: int) -> Tensor:
        return x + (7 << abs(n)) + (self.n >> (n + 3)) * (x.size(0) << True)

    def by_a_size(self, x: Tensor, n: int) -> Tensor:
        return x + (-2) ** x.size(0) + x.size(1) ** x.size(0) + x**n


class Divided(nn.Module):
    def slices(self, y: Tensor, n: int) -> Any:
        return y[: n // 2 // -2], y[: y.size(0) // 2 // -2], divmod(n // 2, -3), (n // 2 + 1) % 3

    def by_a_number(self, y: Tensor, n: int) -> Any:
        return n // 3 // (n - 20), y + n // 2 // (n - 9)


# By default a first trace is static, and others are dynamic once sizes and ints have changed.
@pytest.mark.parametrize("name", [name for name in vars(Net) if name.startswith(("of", "by"))])
def test_powers_are_those_of_python(name: str, cache_dir: Path) -> None:
    for is_relaunched in (False, True):
        net = Net()
        cached: Any = gearcache.cache_compile(getattr(net, name), config=strict_config())
        for rows in (3, 4):
            x = torch.arange(rows * 6.0).reshape(rows, 6) - 4
            for n in (3, 2, -1):
                net.n = n
                with torch.no_grad():
                    wanted = getattr(net, name)(x.clone(), n)
                    torch.testing.assert_close(cached(x.clone(), n), wanted, equal_nan=True, rtol=0, atol=0)
        assert not is_relaunched or cached.stats.traces == 0


@pytest.mark.parametrize("name", [name for name, value in vars(Divided).items() if callable(value)])
def test_divisions_are_those_of_python(name: str, cache_dir: Path) -> None:
    for _ in ("cold", "relaunched"):
        method = getattr(Divided(), name)
        cached: Any = gearcache.cache_compile(method, config=strict_config())
        y = torch.arange(9.0)
        for n in (5, 7, -3, 0, 30, 9):
            try:
                expected = method(y, n)
            except (ZeroDivisionError, IndexError) as error:
                with pytest.raises(type(error)):
                    cached(y, n)
            else:
                torch.testing.assert_close(cached(y, n), expected, rtol=0, atol=0)
