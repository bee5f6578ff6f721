"""Powers of negative numbers, for which torch's code of a graph has no brackets; exponents and shifts that vary."""

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
    def __init__(self) -> None:
        super().__init__()
        self.base, self.n = -2, 3

    def of_a_tensor(self, x: Tensor, n: int) -> Tensor:
        return (-2) ** x + (-2.5) ** x.long() + self.base**x

    def of_an_attribute(self, x: Tensor, n: int) -> Tensor:
        return x[:, n] + self.n * self.n**2 - self.n

    def of_an_int_that_is_an_index(self, x: Tensor, n: int) -> Tensor:
        return x[:, n] + n * n**2 + (n - 5) ** 2 * -(n**2) + pow(n, 3)

    def by_an_int(self, x: Tensor, n: int) -> Tensor:
        return x * (-1) ** n + pow(-3, n) + (n - 9) ** n

    def by_a_shift(self, x: Tensor, n: int) -> Tensor:
        return x + (7 << abs(n)) + (self.n >> (n + 3)) * (x.size(0) << True)

    def by_a_size(self, x: Tensor, n: int) -> Tensor:
        return x + (-2) ** x.size(0) + x.size(1) ** x.size(0) + x**n

    def by_what_torch_knows_no_bounds_of(self, x: Tensor, n: int) -> Tensor:
        return ((x < n * ((n > 2) + 1)) < (n << (n < 9))) + (n - 2) ** 2 * (n > 1) + int(True ^ (n > 2)) * n


METHODS = [name for name in vars(Net) if name.startswith(("of", "by"))]


# None: a static trace, and dynamic ones once sizes and ints have changed, as with True.
@pytest.mark.parametrize("dynamic", sampled([True, None, False], [None]))
@pytest.mark.parametrize("name", METHODS)
def test_powers_are_those_of_python(name: str, dynamic: bool | None, cache_dir: Path) -> None:
    for is_relaunched in (False, True):
        net = Net()
        cached: Any = gearcache.cache_compile(getattr(net, name), config=strict_config(), dynamic=dynamic)
        for rows in (3, 4):
            x = torch.arange(rows * 6.0).reshape(rows, 6) - 4
            for n in (3, 2, -1, -3):
                net.n = n
                with torch.no_grad():
                    wanted = getattr(net, name)(x.clone(), n)
                    torch.testing.assert_close(cached(x.clone(), n), wanted, equal_nan=True, rtol=0, atol=0)
        assert not is_relaunched or cached.stats.traces == 0
