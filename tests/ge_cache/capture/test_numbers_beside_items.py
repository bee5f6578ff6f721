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

    def narrow(self, x: Tensor, k: Tensor, n: int) -> Any:
        return x.to(torch.int8) * k.item() + n


@pytest.mark.parametrize("dynamic", [True, None, False])
@pytest.mark.parametrize("name", ["beside", "combined", "narrow"])
def test_numbers_beside_values_of_tensors(name: str, dynamic: bool | None, cache_dir: Path) -> None:
    for _ in ("cold", "relaunched"):
        net, other = Net(), Net()
        cached: Any = gearcache.cache_compile(getattr(net, name), config=strict_config(), dynamic=dynamic)
        for rows, n, k in ((3, 5, 2), (3, 6, 3), (4, 7, -1), (3, 8, 2)):
            x = torch.arange(float(rows))
            expected = getattr(other, name)(x, torch.tensor(k), n)
            torch.testing.assert_close(cached(x, torch.tensor(k), n), expected, rtol=0, atol=0)
