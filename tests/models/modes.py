"""Methods that are called under every mode of autograd, and the modes.

Arguments, parameters and buffers are made inside or outside of inference mode (`made`), calls run under a mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

MODES: dict[str, Callable[[], Any]] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}
SIDES = ("inside", "outside")


def made(side: str, make: Callable[[], Any]) -> Any:
    """Return what a function makes inside or outside of inference mode."""
    with torch.inference_mode(side == "inside"):
        return make()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("table", torch.randn(8, 4))
        self.tables = [torch.randn(4)]

    def plain(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) + torch.tensor([1.0, 2.0, 3.0, 4.0])

    def views(self, x: Tensor) -> Any:
        double = x * 2
        return {"input": x.view(-1), "same": x, "fresh": [double, double[1:]], "weight": self.linear.weight.t()}

    def writes(self, x: Tensor) -> Tensor:
        x.add_(self.tables[0])
        return x * 2

    def counts(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x + self.count

    def returns_what_it_writes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mul_(3), self.count.add_(1)

    def assigns(self, x: Tensor) -> Tensor:
        self.seen = x * 2
        return self.seen[1:]

    def step(self, x: Tensor, keys: Tensor, values: list[Tensor], position: Tensor) -> Tensor:
        keys.index_copy_(0, position, x)
        values[0].index_copy_(0, position, self.linear(x))
        return torch.softmax(x @ keys.t(), -1) @ values[0]

    def looks_up(self, x: Tensor, position: Tensor) -> Tensor:
        return self.linear(x) + self.table[position]


def _x(rows: int = 2) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(rows, 4),)


def _step() -> tuple[Any, ...]:
    return torch.randn(2, 4), torch.zeros(8, 4), [torch.zeros(8, 4)], torch.tensor([1, 5])


@dataclass(frozen=True)
class Method:
    """A method of `Net`, how it is cached, and what makes the arguments of its first and of its later calls."""

    name: str
    arguments: tuple[Callable[[], tuple[Any, ...]], ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


METHODS = {
    "plain": Method("plain", (_x(),)),
    "static": Method("plain", (_x(),), {"dynamic": False}),
    "dynamic": Method("plain", (_x(3), _x(5))),
    "geared": Method("plain", (_x(2), _x(4), _x(1)), {"gears": {"x": {0: [1, 2, 4]}}}),
    "padded": Method(
        "plain", (_x(4), _x(3), _x(2)), {"gears": {"x": {0: [2, 4]}}}, {"on_miss": "pad", "pad_values": {"x": 0}}
    ),
    "padded writes": Method(
        "writes", (_x(4), _x(3)), {"gears": {"x": {0: [2, 4]}}}, {"on_miss": "pad", "pad_values": {"x": {0: 0}}}
    ),
    "unchecked": Method("plain", (_x(),), {}, {"validate": "gears"}),
    "views": Method("views", (_x(),)),
    "dynamic views": Method("views", (_x(3), _x(5))),
    "writes": Method("writes", (_x(),)),
    "dynamic writes": Method("writes", (_x(3), _x(5))),
    "counts": Method("counts", (_x(),)),
    "returns what it writes": Method("returns_what_it_writes", (_x(),)),
    "assigns": Method("assigns", (_x(),)),
    "step": Method("step", (_step,)),
    "looks up": Method("looks_up", (lambda: (torch.randn(2, 4), torch.tensor([3, 0])),)),
}


def without_recording(mode: str) -> contextlib.AbstractContextManager[Any]:
    """Return the mode in which eager gives what a cached call under `mode` has to give: nothing is recorded."""
    return torch.no_grad() if mode == "grad" else MODES[mode]()
