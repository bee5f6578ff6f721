"""The equal blocks of a model: one entry, one trace, weights of their own; what differs among them is never shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.attaching.repeated import RepeatedAttachment, find_blocks
from gearcache.errors import AlreadyAttached, UnsupportedMethod
from tests.support.scenarios import strict_config

X = torch.arange(8.0).view(2, 4) / 8


class Block(nn.Module):
    def __init__(self, number: int = 0, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(4, width)
        self.back = nn.Linear(width, 4)
        self.number = number

    def forward(self, h: Tensor, scale: Tensor | None = None) -> Tensor:
        h = h + self.back(self.linear(h).relu())
        return h if scale is None else h * scale


class Numbered(Block):
    """As layers of decoders have an index, which leads to their part of a cache."""

    def forward(self, h: Tensor, scale: Tensor | None = None) -> Tensor:
        return super().forward(h, scale) * (1 + self.number)


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.layers:
            h = block(h)
        return h


def eager(model: nn.Module, *args: Any) -> Any:
    with torch.no_grad():
        return model(*args)


def attached(model: nn.Module, repeated: Any = "layers", **options: Any) -> RepeatedAttachment:
    found = gearcache.attach(model, repeated=repeated, **{"config": strict_config(), **options})
    assert isinstance(found, RepeatedAttachment)
    return found


def test_equal_blocks_are_traced_once_and_each_has_its_weights(cache_dir: Path) -> None:
    for launch in range(2):
        model = Stack(*(Block(number) for number in range(3)))
        expected = eager(model, X)
        served = attached(model, True, gears={"h": {0: [2, 4]}})
        assert torch.equal(eager(model, X), expected)
        stats = served.stats
        assert (stats.traces, stats.compiles) == ((0, 0) if launch else (1, 2))
        assert (stats.loads, stats.calls, stats.gears) == (6, 3, {"h.size(0)=2": 3, "h.size(0)=4": 0})
        assert len(served.entry_paths) == 1
        assert repr(served) == "<attached 3 blocks of Stack, Block.forward, 1 entry, 6 graphs bound>"
        assert list(served.blocks) == [f"layers.{number}" for number in range(3)]
        model.layers[2].back.weight.data.mul_(2)
        model.layers[1].linear.weight = nn.Parameter(torch.ones(4, 4))
        found = eager(model, X)
        served.detach()
        assert not served.is_attached
        assert torch.equal(found, eager(model, X))


def test_a_number_that_each_forward_reads_takes_two_traces_for_all_blocks(cache_dir: Path) -> None:
    count = 5
    for launch in range(2):
        model = Stack(*(Numbered(number) for number in range(count)))
        expected = eager(model, X)
        served = attached(model, config=strict_config(max_variants=2))
        assert torch.equal(eager(model, X), expected)
        stats = served.stats
        assert (stats.traces, stats.eager_calls) == (0 if launch else 2, 0), "that of the first, and one for all others"
        assert len(served.entry_paths) == 1
        assert launch or "number" in served.explain()
    model.layers[2].number, model.layers[3].number = 3, 2
    found = eager(model, X)
    served.detach()
    assert torch.equal(found, eager(model, X))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
        self.left = Stack(Block(), Block(), Block(width=6))
        self.stages = nn.ModuleList(
            [nn.Sequential(Block(width=6), Block(), Block()), nn.Sequential(Block(), Numbered())]
        )
        shared = Block()
        self.tied = nn.ModuleList([shared, shared, Block()])


class OfDiffusers(Nested):
    _repeated_blocks = ("Numbered",)


def test_blocks_are_found_by_class_and_structure() -> None:
    nested = Nested()
    assert list(find_blocks(nested, True)) == [
        *(f"left.layers.{number}" for number in range(3)),
        *(f"stages.0.{number}" for number in range(3)),
        "tied.0",
        "tied.2",
    ]
    assert list(find_blocks(OfDiffusers(), True)) == ["stages.1.1"]
    assert list(find_blocks(nested, ["stages.1", "left.layers"])) == [
        "stages.1.0",
        "stages.1.1",
        *(f"left.layers.{number}" for number in range(3)),
    ]
    assert list(find_blocks(nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, batch_first=True), 2), True)) == [
        "layers.0",
        "layers.1",
    ]


@pytest.mark.parametrize(
    ("repeated", "error", "text"),
    [
        ("first", ValueError, "names `first`, which is a Linear in `Stack`; .*; those of this model are `layers`"),
        (["layers", 3], TypeError, r"repeated is \['layers', 3\]; it must be the path"),
    ],
)
def test_a_path_that_leads_to_no_blocks_is_told(repeated: Any, error: type[Exception], text: str) -> None:
    model = Stack(Block(), Block())
    with pytest.raises(error, match=text):
        gearcache.attach(model, repeated=repeated)


def test_a_model_without_blocks_is_told() -> None:
    with pytest.raises(ValueError, match="finds no list of equal blocks in `Linear`; attach the module itself"):
        gearcache.attach(nn.Linear(2, 2), repeated=True)
    with pytest.raises(UnsupportedMethod, match="takes a torch"):
        gearcache.attach(3, repeated=True)  # type: ignore[call-overload]


def test_where_one_block_cannot_be_attached_none_is(cache_dir: Path) -> None:
    model = Stack(Block(), Block(), Block())
    one = gearcache.attach(model.layers[2], config=strict_config())
    with pytest.raises(AlreadyAttached):
        attached(model)
    assert [block._compiled_call_impl is None for block in model.layers] == [True, True, False]
    assert one.is_attached
