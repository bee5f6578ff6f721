"""Methods that read of a tensor everything but its values, wherever it lives."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run

STATE: list[Any] = [None]
#: How many other tensors than the first one a case draws.
_DRAWN = 3


def chosen(x: Tensor, condition: bool) -> Tensor:
    return x * 2 if condition else x * 3


READS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "size": lambda x, y: x * y.shape[0],
    "contiguous": lambda x, y: chosen(x, y.is_contiguous()),
    "rank": lambda x, y: x * y.dim(),
    "dtype": lambda x, y: x.to(y.dtype),
    "requires_grad": lambda x, y: chosen(x, y.requires_grad),
    "class": lambda x, y: chosen(x, type(y) is Tensor),
    "present": lambda x, y: chosen(x, y is not None),
    "same": lambda x, y: chosen(x, x is y),
    "sizes_compared": lambda x, y: chosen(x, y.shape[0] == x.shape[0]),
}


class Holder:
    """Has what a module would register: a parameter."""

    held: Any = None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.holder = Holder()
        self.items: list[Any] = [None]

    def argument(self, x: Tensor, y: Any, read: Any) -> Tensor:
        return read(x, y)

    def item(self, x: Tensor, y: Any, read: Any) -> Tensor:
        return read(x, y["given"][0])

    def attribute(self, x: Tensor, y: Any, read: Any) -> Tensor:
        return read(x, self.holder.held)

    def attribute_item(self, x: Tensor, y: Any, read: Any) -> Tensor:
        return read(x, self.items[0])

    def in_global(self, x: Tensor, y: Any, read: Any) -> Tensor:
        return read(x, STATE[0])


PLACES = ("argument", "item", "attribute", "attribute_item", "in_global")
MODES: dict[str, dict[str, Any]] = {
    "static": {"dynamic": False},
    "dynamic": {"dynamic": True},
    "gears": {"gears": {"x": {0: [2, 3]}}, "on_miss": "compile"},
}


def others(x: Tensor) -> list[Any]:
    """What may lie where the trace found a tensor of the kind of the first."""
    return [
        torch.randn(2, 5),
        torch.randn(4, 5),
        torch.randn(5, 2).t(),
        torch.randn(2, 6),
        torch.randn(2, 5, requires_grad=True),
        torch.randn(2, 5, requires_grad=True) * 1,
        nn.Parameter(torch.randn(2, 5)),
        torch.randn(2, 5).double(),
        torch.randn(2, 5, 1),
        None,
        x,
    ]


def run_case(run: Run, read: str, place: str, mode: str, rng: random.Random) -> None:
    net, function = Net(), READS[read]
    cached = run.cache(getattr(net, place), **MODES[mode])
    x = torch.randn(2, 3)
    given = others(x)
    if mode == "gears":
        given.pop()  # of a tensor that is met at two places gears may name the first one only
    for number, index in enumerate([0, *rng.sample(range(len(given)), _DRAWN), 0]):
        y = given[index]
        net.holder.held, net.items[0], STATE[0] = y, y, y
        passed = {"argument": y, "item": {"given": [y]}}.get(place)
        with torch.no_grad():
            try:
                expected = getattr(net, place)(x, passed, function)
            except (AttributeError, TypeError, RuntimeError):
                continue  # eager mode raises as well: None has no shape
            run.check(f"{read} {place} {mode} {number}", cached(x, passed, function), expected)


def everything_read_of_a_tensor_is_compared(run: Run) -> None:
    """Each read once, and each place in each mode."""
    rng = random.Random(7)
    for read, place, mode in zip(READS, itertools.cycle(PLACES), itertools.cycle(MODES), strict=False):
        run_case(run, read, place, mode, rng)


class Box:
    def __init__(self) -> None:
        self.v = 1.0


def grown(x: Tensor, a: list[Any], b: list[Any]) -> Tensor:
    a.append(1.0)
    return x * (len(b) + 1)


def set_key(x: Tensor, a: dict[str, float], b: dict[str, float]) -> Tensor:
    a["k"] = 5.0
    return x * b.get("k", 2.0)


def set_attribute(x: Tensor, a: Box, b: Box) -> Tensor:
    a.v = a.v + 1
    return x * b.v


OBJECTS: dict[str, tuple[Callable[..., Tensor], Callable[[], Any]]] = {
    "grown": (grown, list),
    "set_key": (set_key, dict),
    "set_attribute": (set_attribute, Box),
    "compared": (lambda x, a, b: chosen(x, a is b), list),
    "tensors_in_set": (lambda x, a, b: x * len({a, b}), lambda: torch.ones(2)),
}


class Pairs(nn.Module):
    def arguments(self, x: Tensor, a: Any, b: Any, act: Any) -> Tensor:
        return act(x, a, b)

    def with_global(self, x: Tensor, a: Any, b: Any, act: Any) -> Tensor:
        return act(x, a, STATE[0])


def one_object_or_two_is_seen(run: Run) -> None:
    net, x = Pairs(), torch.ones(2, 3)
    for (name, (act, make)), place in zip(OBJECTS.items(), itertools.cycle(("arguments", "with_global")), strict=False):
        cached = run.cache(getattr(net, place), dynamic=False)
        for turn in range(3):
            results = []
            for call in (getattr(net, place), cached):
                a = make()
                b = STATE[0] = a if turn % 2 else make()
                with torch.no_grad():
                    results.append(call(x, a, b, act))
            run.check(f"{name} {place} {turn}", *reversed(results))


def scaled(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * factor


def calling(inner: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: inner(x)


#: Of two neighbours one has to be told from the other.
CALLABLES: list[Any] = [
    *(Tensor.cos, Tensor.sin, functools.wraps(torch.cos)(scaled(2.0)), functools.wraps(torch.cos)(scaled(3.0))),
    *(functools.partial(torch.mul, other=2.0), functools.partial(torch.mul, other=3.0)),
    *(calling(Tensor.cos), calling(Tensor.sin), torch.nn.ReLU(), torch.nn.SiLU()),
]


class Calls(nn.Module):
    def argument(self, x: Tensor, f: Any) -> Tensor:
        return f(x)

    def in_list(self, x: Tensor, f: Any) -> Tensor:
        return f[0](x)


def callables_are_told_apart(run: Run) -> None:
    """Every second pair as an argument, the others in a list, and again once all are known."""
    net = Calls()
    x = torch.rand(3, 3)
    for method, wrapped in ((net.argument, False), (net.in_list, True)):
        cached = run.cache(method, dynamic=wrapped)
        some = [number for number in range(len(CALLABLES)) if (number // 2 % 2 == 1) == wrapped]
        for round_, number in itertools.product(range(2), some):
            f = [CALLABLES[number]] if wrapped else CALLABLES[number]
            with torch.no_grad():
                expected = method(x, f)
            run.check(f"{wrapped} {number} {round_}", cached(x, f), expected)
