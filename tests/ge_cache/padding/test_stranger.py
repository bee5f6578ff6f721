"""What a stranger found that padding let through: views that no schema tells, bits for numbers, expanded arguments."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import GearSpecError, UnknownGear
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def writes_a_view(self, x: Tensor, mask: Tensor) -> Tensor:
        torch.einsum("i->i", self.seen[: x.shape[0]]).add_(1)
        return x * 2

    def negates_positions(self, x: Tensor, mask: Tensor) -> Tensor:
        positions = torch.arange(x.shape[0])
        torch.einsum("i->i", positions).neg_()
        return x[positions]

    def reads_bits(self, x: Tensor, mask: Tensor) -> Tensor:
        return x.masked_fill(mask.view(torch.int32) == 1, 0).sum(1)

    def keeps_channels_last(self, x: Tensor, mask: Tensor) -> Tensor:
        y = x.view(-1, 1, 1, x.shape[1]).expand(-1, 3, 2, -1)
        return y * torch.ones_like(y, memory_format=torch.channels_last)

    def masks(self, x: Tensor, mask: Tensor) -> Tensor:
        return (x * mask).sum(1)


def cached_of(net: Net, name: str, dim: int, fills: dict[str, float]) -> Any:
    gears = {argument: {dim: [4, 8]} for argument in fills}
    return gearcache.cache_compile(
        getattr(net, name), gears=gears, config=strict_config(on_miss="pad", pad_values=fills)
    )


@pytest.mark.parametrize(
    ("name", "dim", "arguments"),
    [
        ("writes_a_view", 0, ["x"]),
        ("negates_positions", 0, ["x"]),
        ("reads_bits", 1, ["x", "mask"]),
        ("keeps_channels_last", 0, ["x"]),
    ],
)
def test_a_call_is_padded_rightly_or_refused(cache_dir: Path, name: str, dim: int, arguments: list[str]) -> None:
    net, twin = Net(), Net()
    cached = cached_of(net, name, dim, dict.fromkeys(arguments, 7.0) | ({"mask": 1.0} if "mask" in arguments else {}))
    for size in (3, 5, 8):
        sizes = [2, 2]
        sizes[dim] = size
        x, mask = torch.randn(sizes), torch.zeros(sizes)
        before = copy.deepcopy(twin.state_dict())
        expected = getattr(twin, name)(x, mask)
        refused: GearSpecError | None = None
        try:
            found = cached(x, mask)
        except GearSpecError as error:
            refused = error
        if refused is not None:
            assert "gears name" not in str(refused)
            twin.load_state_dict(before)
            continue
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(net.seen, twin.seen)


def test_an_expanded_argument_cannot_be_filled_and_says_so(cache_dir: Path) -> None:
    cached = cached_of(Net(), "masks", 1, {"x": 7.0, "mask": 0.0})
    cached(torch.ones(2, 4), torch.ones(1, 4).expand(2, 4))
    with pytest.raises(UnknownGear, match="takes `mask` expanded, which cannot be filled"):
        cached(torch.ones(2, 3), torch.ones(1, 3).expand(2, 3))
