"""Methods that take every kind of argument."""

from __future__ import annotations

import enum
import itertools
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run, traced

Pair = namedtuple("Pair", ["left", "right"])


class Mode(enum.Enum):
    A = 1
    B = 2


@dataclass
class Step:
    ids: Tensor
    mask: Tensor | None = None
    offset: int = 0


class Meta:
    """A plain object with tensors and scalars in its attributes."""

    def __init__(self, position: Tensor, scale: float = 1.0) -> None:
        self.position = position
        self.scale = scale
        self.inner = [position * 2]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def mixed(self, x: Tensor, y: Tensor, /, z: Tensor, w: float = 2.0, *, bias: Tensor | None = None) -> Tensor:
        out = self.linear(x) + y * w - z
        return out if bias is None else out + bias

    def star(self, x: Tensor, *rest: Tensor, **named: Tensor) -> Tensor:
        out = self.linear(x)
        for tensor in rest:
            out = out + tensor
        for name, tensor in named.items():
            out = out * tensor if name == "factor" else out - tensor
        return out

    def scalar(self, x: Tensor, value: Any) -> Any:
        if value is None:
            return x + 1
        if value is True:
            return x + 2
        if value is False:
            return x + 3
        if isinstance(value, str):
            return x * len(value), value
        return x * value

    def nested(self, pair: list[Tensor], both: tuple[Tensor, Tensor], named: dict[str, Tensor]) -> Tensor:
        return pair[0] @ both[0] + pair[1] * both[1] + named["a"] - named["b"]

    def in_dataclass(self, step: Step) -> Tensor:
        out = self.linear(step.ids) + step.offset
        return out if step.mask is None else out * step.mask

    def in_object(self, meta: Meta, pair: Pair) -> Tensor:
        return meta.position * meta.scale + meta.inner[0] + pair.left - pair.right

    def members(self, x: Tensor, p: Mode, q: Mode) -> Tensor:
        return x + (50 if p is Mode.A else 70) + (1 if q is Mode.A else 2)

    def update(self, x: Tensor, keys: list[Tensor], values: list[Tensor], position: Tensor) -> Tensor:
        total = x.clone()
        for key, value in zip(keys, values, strict=True):
            key.index_copy_(1, position, x.unsqueeze(1))
            value.add_(x.unsqueeze(1))
            total = total + (key * value).sum(1)
        return total


@traced(3)
def positional_keyword_and_default(run: Run) -> None:
    net = Net()
    cached = run.cache(net.mixed)
    x, y, z, bias = (torch.randn(2, 4) for _ in range(4))
    run.compare("positional", cached, net.mixed, x, y, z)
    run.compare("keyword", cached, net.mixed, x, y, z=z)
    run.compare("default given", cached, net.mixed, x, y, z, 2.0)
    run.compare("keyword only", cached, net.mixed, x, y, z, bias=bias)
    run.compare("another scalar", cached, net.mixed, x, y, w=3.0, z=z)


@traced(4)
def star_arguments(run: Run) -> None:
    net = Net()
    cached = run.cache(net.star)
    x, y, z = (torch.randn(2, 4) for _ in range(3))
    run.compare("none", cached, net.star, x)
    run.compare("one", cached, net.star, x, y)
    run.compare("named", cached, net.star, x, y, factor=z)
    run.compare("other name", cached, net.star, x, y, term=z)
    run.compare("one again", cached, net.star, x, y)


@traced(8)
def scalars_are_variants(run: Run) -> None:
    net = Net()
    cached = run.cache(net.scalar)
    x = torch.randn(3, 4)
    values = [None, True, False, 1, 2, 1.0, 2.5, "ab", "abc", 0, 0.0]
    for value in values:
        run.compare(f"{type(value).__name__} {value}", cached, net.scalar, x, value)
    for value in reversed(values):
        run.compare(f"{type(value).__name__} {value} again", cached, net.scalar, x + 1, value)


def lists_tuples_and_dicts(run: Run) -> None:
    net = Net()
    cached = run.cache(net.nested)
    for size in (2, 1):
        pair = [torch.randn(size, 4), torch.randn(size, 4)]
        both = (torch.randn(4, 4), torch.randn(size, 4))
        run.compare(f"{size}", cached, net.nested, pair, both, {"a": torch.randn(4), "b": torch.randn(size, 4)})


def members_of_an_enum_at_two_places(run: Run) -> None:
    """One member at both places comes first, or two."""
    pairs = list(itertools.product(Mode, Mode))
    for first, order in enumerate((pairs, [*pairs[1:], pairs[0]])):
        method = Net().members
        cached = run.cache(method, dynamic=bool(first))  # an entry of its own
        for p, q in order:
            run.check(f"{first} {p} {q}", cached(torch.zeros(1, 4), p, q), method(torch.zeros(1, 4), p, q))


@traced(4)
def dataclasses_objects_and_namedtuples(run: Run) -> None:
    net = Net()
    step = run.cache(net.in_dataclass)
    run.compare("dataclass", step, net.in_dataclass, Step(torch.randn(2, 4)))
    run.compare("its mask", step, net.in_dataclass, Step(torch.randn(2, 4), torch.randn(2, 4)))
    run.compare("its offset", step, net.in_dataclass, Step(torch.randn(2, 4), offset=3))
    other = run.cache(net.in_object)
    pair = Pair(torch.randn(2, 4), torch.randn(2, 4))
    run.compare("object", other, net.in_object, Meta(torch.randn(2, 4)), pair)
    run.compare("its scale", other, net.in_object, Meta(torch.randn(2, 4), 0.5), pair)


def key_value_cache_in_lists(run: Run) -> None:
    net = Net()
    cached = run.cache(net.update, gears={"x": {0: [1, 2]}})
    for batch in (2, 1):
        keys = [torch.zeros(batch, 6, 4) for _ in range(2)]
        values = [torch.zeros(batch, 6, 4) for _ in range(2)]
        for position in range(2):
            x, label = torch.randn(batch, 4), f"{batch} at {position} of {len(run.checks)}"
            run.compare(label, cached, net.update, x, keys, values, torch.tensor([position]))
