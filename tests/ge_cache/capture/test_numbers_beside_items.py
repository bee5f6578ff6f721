"""Numbers that vary beside values that the method takes out of tensors: no check of a call knows those."""

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
        self.calls = 0

    def beside(self, x: Tensor, k: Tensor, n: int) -> Any:
        self.calls += 1
        return self.calls, x * k.item() + n

    def combined(self, x: Tensor, k: Tensor, n: int) -> Any:
        return x * (k.item() * n) + k.item() // 2, n + 1


# None: a static trace, and dynamic ones once sizes and ints have changed, as with True.
@pytest.mark.parametrize("name", ["beside", "combined"])
def test_numbers_beside_values_of_tensors(name: str, cache_dir: Path) -> None:
    for _ in ("cold", "relaunched"):
        net, other = Net(), Net()
        cached: Any = gearcache.cache_compile(getattr(net, name), config=strict_config())
        for rows, n, k in ((3, 5, 2), (3, 6, 3), (4, 7, -1), (3, 8, 2)):
            x = torch.arange(float(rows))
            expected = getattr(other, name)(x, torch.tensor(k), n)
            torch.testing.assert_close(cached(x, torch.tensor(k), n), expected, rtol=0, atol=0)


class Cut(nn.Module):
    """Its sizes cannot be dynamic: a symbol comes from the value of a tensor."""

    def narrowed(self, x: Tensor, k: Tensor, n: int) -> Tensor:
        size = k.item()
        torch._check(size >= 0)
        torch._check(size <= x.size(1))
        return x.narrow(1, 0, size) + n  # type: ignore[arg-type]


@pytest.mark.parametrize(("dynamic", "graphs"), [(True, 1), (None, 2)])
def test_ints_stay_numbers_where_sizes_must_be_static(dynamic: bool | None, graphs: int, cache_dir: Path) -> None:
    net = Cut()
    cached: Any = gearcache.cache_compile(net.narrowed, config=strict_config(), dynamic=dynamic)
    for n in range(3, 9):
        x, k = torch.randn(2, 8), torch.tensor(n % 5)
        assert torch.equal(cached(x, k, n), net.narrowed(x, k, n))
    assert cached.stats.compiles == graphs
