"""What a stranger found that padding let through: views that no schema tells, bits for numbers, expanded arguments."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import GearSpecError, InputError, UnknownGear
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def writes_a_view(self, x: Tensor, mask: Tensor) -> Tensor:
        torch.einsum("i->i", self.seen[: x.shape[0]]).add_(1)
        return x * 2

    def reads_bits(self, x: Tensor, mask: Tensor) -> Tensor:
        return x.masked_fill(mask.view(torch.int32) == 1, 0).sum(1)

    def keeps_channels_last(self, x: Tensor, mask: Tensor) -> Tensor:
        y = x.view(-1, 1, 1, x.shape[1]).expand(-1, 3, 2, -1)
        return y * torch.ones_like(y, memory_format=torch.channels_last)

    def returns_a_copy(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def computes_with_a_copy(self, x: Tensor) -> Tensor:
        return x.flatten(1) * 2

    def adds(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * 2 + mask

    def weighs(self, x: Tensor, mask: Tensor) -> Tensor:
        return (x * mask).sum(0)


def cached_of(net: Net, name: str, dim: int, fills: dict[str, float]) -> Any:
    gears = {argument: {dim: [4, 8]} for argument in fills}
    return gearcache.cache_compile(
        getattr(net, name), gears=gears, config=strict_config(on_miss="pad", pad_values=fills)
    )


@pytest.mark.parametrize(
    ("name", "dim", "fills"),
    [
        ("writes_a_view", 0, {"x": 7.0}),
        ("reads_bits", 1, {"x": 7.0, "mask": 1.0}),
        ("keeps_channels_last", 0, {"x": 7.0}),
    ],
)
def test_a_call_is_padded_rightly_or_refused(cache_dir: Path, name: str, dim: int, fills: dict[str, float]) -> None:
    net, twin = Net(), Net()
    cached = cached_of(net, name, dim, fills)
    for size in (3, 8):
        sizes = [2, 2]
        sizes[dim] = size
        x, mask = torch.randn(sizes), torch.zeros(sizes)
        before = copy.deepcopy(twin.state_dict())
        expected = getattr(twin, name)(x, mask)
        try:
            found = cached(x, mask)
        except GearSpecError:
            twin.load_state_dict(before)
            continue
        torch.testing.assert_close((found, net.seen), (expected, twin.seen))


@pytest.mark.parametrize(("name", "is_served"), [("returns_a_copy", False), ("computes_with_a_copy", True)])
def test_at_a_size_of_1_what_is_a_copy_elsewhere_may_be_the_tensor_itself(
    cache_dir: Path, name: str, is_served: bool
) -> None:
    net = Net()
    cached = cached_of(net, name, 0, {"x": 0.0})
    for size in (3, 1):
        x, same = (torch.arange(4.0 * size).reshape(2, size, 2).transpose(0, 1) for _ in range(2))
        expected = getattr(net, name)(same)
        if size == 1 and not is_served:
            with pytest.raises(UnknownGear, match="does not serve a size of 1"):
                cached(x)
            continue
        found = cached(x)
        torch.testing.assert_close((found, x), (expected, same), rtol=0, atol=0)
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("dim", [0, 1])
def test_an_expanded_argument_is_padded_in_any_order_with_packed_ones(cache_dir: Path, dim: int) -> None:
    """Along dim 0, the one row stands for those of the filling; along dim 1, it is longer."""
    net = Net()
    cached = cached_of(net, "adds", dim, {"x": 7.0, "mask": 5.0})
    for size in (4, 3, 6):
        shape = (size, 2) if dim == 0 else (2, size)
        row = torch.randn(1, shape[1])
        for mask in (row.expand(shape), row.repeat(shape[0], 1)):
            x = torch.randn(shape)
            found, expected = cached(x, mask), net.adds(x, mask)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
            assert found.stride() == expected.stride()


def test_an_expanded_argument_has_no_place_for_a_value_on_which_the_proof_rests(cache_dir: Path) -> None:
    net = Net()
    cached = cached_of(net, "weighs", 0, {"x": 7.0, "mask": 0.0})
    packed, expanded = torch.ones(3, 4), torch.ones(1, 4).expand(3, 4)
    for _ in range(2):
        with pytest.raises(InputError, match=r"expanded along a padded dim|strides \(0, 1\)"):
            cached(torch.ones(3, 4), expanded)
    torch.testing.assert_close(cached(torch.ones(3, 4), packed), net.weighs(torch.ones(3, 4), packed))
    assert "fault" not in cached.stats.eager_reasons


def test_a_tensor_that_is_not_expanded_as_the_gear_is_never_taken_for_one_row(cache_dir: Path) -> None:
    """With `validate="gears"` no call compares strides; a wrong tensor is an error and no wrong result."""
    net = Net()
    config = strict_config(on_miss="pad", pad_values={"x": 7.0, "mask": 5.0}, validate="gears")
    cached = gearcache.cache_compile(net.adds, gears={"x": {0: [4, 8]}, "mask": {0: [4, 8]}}, config=config)
    x, expanded = torch.ones(3, 4), torch.ones(1, 4).expand(3, 4)
    assert torch.equal(cached(x, expanded), net.adds(x, expanded))
    packed = torch.arange(12.0).reshape(3, 4)
    with pytest.raises(RuntimeError, match="single memory location"):
        cached(x, packed)
