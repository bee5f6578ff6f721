"""Ints that vary on the emulated NPU: inputs of GE's graphs and of aclgraphs, few for all values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.position = 3

    def decode(self, x: Tensor, keys: Tensor, start: int) -> Tensor:
        keys[:, start : start + 1] = self.linear(x)
        return keys[:, : start + 1].sum(1) + start

    def moved(self, x: Tensor) -> Tensor:
        return x + self.position

    def counted(self, x: Tensor) -> tuple[Tensor, int]:
        self.position += 2
        return x * self.position, self.position + x.size(0)


def _calls(name: str, net: Net) -> list[tuple[Any, ...]]:
    if name == "decode":
        return [(torch.randn(2, 1, 4).to("npu"), torch.zeros(2, 16, 4).to("npu"), start) for start in range(5)]
    return [(torch.randn(2, 3).to("npu"),) for _ in range(4)]


@pytest.mark.parametrize(
    ("name", "dynamic", "mode"),
    [
        ("decode", True, "max-autotune"),
        ("moved", None, "npugraph_ex"),
        ("counted", None, "npugraph_ex"),
    ],
)
def test_few_graphs_serve_an_int_that_varies(name: str, dynamic: bool | None, mode: str, tmp_path: Path) -> None:
    for launch in range(2):
        torch.manual_seed(0)
        ours, theirs = Net().to("npu"), Net().to("npu")
        theirs.load_state_dict(ours.state_dict())
        config = gearcache.CompilerConfig(strict=True, mode=mode)
        cached = gearcache.cache_compile(getattr(ours, name), config=config, cache_dir=tmp_path, dynamic=dynamic)
        for number, call in enumerate(_calls(name, ours)):
            if name == "moved":
                ours.position = theirs.position = 3 + 2 * number
            same = tuple(item.clone() if isinstance(item, Tensor) else item for item in call)
            with torch.no_grad():
                expected, found = getattr(theirs, name)(*same), cached(*call)
            for mine, other in zip(_flat(found), _flat(expected), strict=True):
                if isinstance(other, Tensor):
                    torch.testing.assert_close(mine.cpu(), other.cpu())
                else:
                    assert mine == other
            assert ours.position == theirs.position
            if name == "decode":
                torch.testing.assert_close(call[1].cpu(), same[1].cpu())
        assert cached.stats.traces <= (0 if launch else 3), cached.explain()
        assert cached.stats.eager_calls == 0


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
