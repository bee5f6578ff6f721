"""Numbers that a method takes out of tensors, and results whose sizes depend on values: as in eager at each call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config

WAYS: dict[str, dict[str, Any]] = {
    "dynamic": {"dynamic": True},
    "automatic": {"dynamic": None},
    "static": {"dynamic": False},
    "gears": {"gears": {"x": {0: [2, 4]}}},
}
CALLS = [
    torch.ones(2, 3),
    torch.tensor([[2.0, 1.0, 5.0], [3.0, 0.0, 1.0]]),
    torch.arange(6.0).reshape(2, 3),
    -torch.ones(2, 3),
]


class Taken(nn.Module):
    def scaled(self, x: Tensor) -> Tensor:
        return x * x.sum().item()

    def returned(self, x: Tensor) -> tuple[Tensor, float]:
        return x * 2, x.max().item()

    def selected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[x > 1], x[x > 1].sum()

    def different(self, x: Tensor) -> Tensor:
        return torch.unique(x.masked_fill(x > x.mean().item(), 0.0))

    def taken_apart(self, x: Tensor) -> tuple[Tensor, ...]:
        places = torch.nonzero(x > 1)
        return places, places[:, 0], places[:, 1]

    def beginning(self, x: Tensor) -> Tensor:
        return x[:, : int(x[0].argmax().item()) + 1]

    def counted(self, x: Tensor) -> tuple[Tensor, int]:
        return x, int((x > 1).sum())

    def decided(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum().item() > 3 else x - 1


def _is_equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        return all(_is_equal(*pair) for pair in zip(found, expected, strict=True))
    if isinstance(expected, Tensor):
        return found.dtype == expected.dtype and found.stride() == expected.stride() and torch.equal(found, expected)
    return bool(type(found) is type(expected) and found == expected)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("scaled", "dynamic"),
        ("returned", "static"),
        ("selected", "gears"),
        ("different", "dynamic"),
        ("taken_apart", "automatic"),
    ],
)
def test_each_call_has_its_own_values_also_relaunched(cache_dir: Path, name: str, way: str) -> None:
    for launch in range(2):
        module = Taken().eval()
        served = gearcache.cache_compile(getattr(module, name), config=strict_config(), **WAYS[way])
        with torch.no_grad():
            for x in CALLS:
                assert _is_equal(served(x), getattr(module, name)(x))
        assert served.stats.traces == (0 if launch else 1)


def test_a_branch_on_a_value_is_refused(cache_dir: Path) -> None:
    served = gearcache.cache_compile(Taken().decided, config=strict_config(), **WAYS["gears"])
    with pytest.raises(CaptureError):
        served(CALLS[0])


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        (
            "beginning",
            r"output 0 is a view of an input, of a size that depends on values: return a copy \(`.clone\(\)`\)$",
        ),
        ("counted", r"call `.item\(\)` on the result$"),
    ],
)
def test_what_a_graph_cannot_return_is_refused_with_a_way_out(cache_dir: Path, name: str, way_out: str) -> None:
    served = gearcache.cache_compile(getattr(Taken(), name), config=strict_config())
    with pytest.raises(CaptureError, match=way_out):
        served(CALLS[0])
