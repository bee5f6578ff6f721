"""Numbers that a method takes out of tensors, and results whose sizes depend on values: as in eager at each call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.launches import serve_twice
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
    first, _ = serve_twice(Taken, name, [(x,) for x in CALLS], **WAYS[way])
    assert first.stats.traces == 1


class OfOne(nn.Module):
    """Takes the number that a tensor of one element holds, which Dynamo would take for a number of the call."""

    held: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.tensor(2))

    def branch(self, x: Tensor, count: Tensor) -> Tensor:
        return x + 1 if count.item() > 3 else x - 1

    def item(self, x: Tensor, count: Tensor) -> Tensor:
        return (x + 1, x - 1, x * 2)[int(count)]  # type: ignore[no-any-return]

    def passes(self, x: Tensor, count: Tensor) -> Tensor:
        for _ in range(int(count.item())):
            x = x + 1
        return x

    def branch_on_held(self, x: Tensor, count: Tensor) -> Tensor:
        result = x + 1 if self.held.item() > 1 else x - 1
        self.held.add_(1)
        return result

    def mean(self, x: Tensor, count: Tensor) -> Tensor:
        rows = x[: count.item()]
        return rows.sum(0) / rows.size(0)

    def rest(self, x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        rows = x[int(count) :]
        return rows + 0, rows.new_zeros(rows.size(0))

    def scaled(self, x: Tensor, count: Tensor) -> Tensor:
        return x * count.item()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.int64) for name in ("branch", "item", "passes", "branch_on_held")),
        *(("branch", dtype) for dtype in (torch.float64, torch.int32)),
    ],
)
def test_what_one_number_of_a_tensor_decides_is_refused(cache_dir: Path, name: str, dtype: torch.dtype) -> None:
    served = gearcache.cache_compile(getattr(OfOne(), name), config=strict_config(), dynamic=False)
    with pytest.raises(CaptureError):
        served(torch.ones(4, 3), torch.tensor(2, dtype=dtype))


@pytest.mark.parametrize("name", ["mean", "rest", "scaled"])
def test_the_number_that_a_tensor_holds_is_of_each_call(cache_dir: Path, name: str) -> None:
    x = torch.arange(12.0).reshape(4, 3)
    first, _ = serve_twice(OfOne, name, [(x, torch.tensor(count)) for count in (2, 3, 4, 9, -1)], dynamic=False)
    assert first.stats.traces == 1


class Sized(nn.Module):
    def made(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(int((x > 0).sum().item())), x * 2

    def without_one(self, x: Tensor) -> Tensor:
        rows = x[x > 0].squeeze(0)
        return rows.new_ones(rows.shape[:-1]) + rows.sum(-1)


def test_one_graph_serves_all_sizes_that_values_decide(cache_dir: Path) -> None:
    calls = [(torch.cat([torch.ones(count), -torch.ones(2)]),) for count in (3, 2, 4, 0, 1)]
    assert serve_twice(Sized, "made", calls)[0].stats.traces == 1


def test_a_squeeze_of_a_size_that_values_decide_is_refused(cache_dir: Path) -> None:
    served = gearcache.cache_compile(Sized().without_one, config=strict_config())
    with pytest.raises(CaptureError, match="it squeezes a dim whose size depends on values"):
        served(torch.tensor([1.0, -1.0]))


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


class Written(nn.Module):
    """Reads the number of a tensor after a write of which torch does not know that it concerns the tensor."""

    def item(self, x: Tensor, y: Tensor) -> Tensor:
        constant = torch.tensor([0.0])
        constant[0] = y[0]
        return x * constant.item()

    def view(self, x: Tensor, y: Tensor) -> Tensor:
        constant = torch.tensor([0.0])
        view = constant.view(1)
        constant.add_(y)
        return x * view.item()

    def split(self, x: Tensor, y: Tensor) -> Tensor:
        constant = torch.tensor([0.0, 1.0])
        constant.split(1)[0].add_(y)
        return x * constant[0].item()

    def listed(self, x: Tensor, y: Tensor) -> Tensor:
        constant = torch.tensor([0.0])
        torch._foreach_copy_([constant], [y])
        return x * constant.item()

    def twice(self, x: Tensor, y: Tensor) -> Tensor:
        y = y + 0
        before = y.item()
        y.data.add_(1)
        return x * (y.item() - before)

    def twice_listed(self, x: Tensor, y: Tensor) -> Tensor:
        y = y + 0
        before = y.item()
        torch._foreach_add_([y], 1.0)
        return x * (y.item() - before)

    def nonzero(self, x: Tensor, y: Tensor) -> Tensor:
        y = y + 0
        before = y.nonzero()
        y.data.zero_()
        return x * (before.shape[0] - y.nonzero().shape[0])

    def again(self, x: Tensor, y: Tensor) -> Tensor:
        mask = y > 2
        return y[mask] + (y * 2)[mask] + y.unique() + y.item() * x[0]

    def known(self, x: Tensor, y: Tensor) -> Tensor:
        constant = torch.tensor([2.0])
        constant.add_(1)
        return x * constant.item()


WRITTEN = ["item", "view", "split", "listed", "twice", "twice_listed", "nonzero", "again", "known"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_number_is_that_of_the_tensor_when_it_is_read(cache_dir: Path, name: str) -> None:
    serve_twice(Written, name, [(torch.ones(3), torch.tensor([number])) for number in (3.0, 9.0, 4.0)])
