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

    def step(self, x: Tensor, keys: Tensor, values: list[Tensor], position: Tensor) -> Tensor:
        keys.index_copy_(0, position, x)
        values[0].index_copy_(0, position, self.linear(x))
        return torch.softmax(x @ keys.t(), -1) @ values[0]


class Asking(Net):
    """Methods that ask for the modes, or set them."""

    def asks(self, x: Tensor) -> Tensor:
        return x + 1 if torch.is_grad_enabled() else x - 1

    def asks_without(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.asks(x)

    def asks_an_input(self, x: Tensor) -> Tensor:
        return x + 1 if x.requires_grad else x - 1

    def asks_a_result(self, x: Tensor) -> Tensor:
        return x + 1 if self.linear(x).requires_grad else x - 1

    def inside(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.linear(x)

    def partly_inside(self, x: Tensor) -> Any:
        with torch.inference_mode():
            double = x * 2
        return double[1:], double, double + 1, x[1:]

    def outside(self, x: Tensor) -> Tensor:
        with torch.inference_mode(False):
            return x * 2

    @torch.inference_mode()
    def decorated(self, x: Tensor) -> Any:
        double = x * 2
        return double, double.view(-1), x.view(-1), x

    @torch.inference_mode()
    def decorated_writes(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x + self.count.add_(1)

    @torch.no_grad()
    def decorated_asks(self, x: Tensor) -> Tensor:
        return self.asks(x)

    def detaches(self, x: Tensor) -> Any:
        return x.detach(), x.detach().view(-1), x.view(-1), self.linear.weight.detach()

    def writes_inside(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            self.count.add_(1)
        return x + self.count

    def enables(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            return self.linear(x)

    def enables_and_asks(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            double = x * 2
        return x + 1 if double.requires_grad else x - 1

    def leaves_it_on(self, x: Tensor) -> Tensor:
        torch.set_grad_enabled(True)
        return x + 1

    def sets_and_resets(self, x: Tensor) -> Tensor:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        double = x * 2
        torch.set_grad_enabled(before)
        return double

    def asks_for_inference_mode(self, x: Tensor) -> Tensor:
        return x + 1 if torch.is_inference_mode_enabled() else x - 1

    def asks_for_an_inference_tensor(self, x: Tensor) -> Tensor:
        return x + 1 if x.is_inference() else x - 1

    def differentiates(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            return torch.autograd.grad((z * z).sum(), z)[0]


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
    net: type[Net] = Net
    #: Words of the error with which some calls of it are refused although eager runs them.
    refusal: str = ""


METHODS = {
    "dynamic": Method("plain", (_x(3), _x(5))),
    "geared": Method("plain", (_x(2), _x(4), _x(1)), {"gears": {"x": {0: [1, 2, 4]}}}),
    "padded": Method(
        "plain", (_x(4), _x(3), _x(2)), {"gears": {"x": {0: [2, 4]}}}, {"on_miss": "pad", "pad_values": {"x": 0}}
    ),
    "unchecked": Method("plain", (_x(),), {}, {"validate": "gears"}),
    "views": Method("views", (_x(3), _x(5))),
    "writes": Method("writes", (_x(3), _x(5))),
    "counts": Method("counts", (_x(),)),
    "returns what it writes": Method("returns_what_it_writes", (_x(),)),
    "step": Method("step", (_step,)),
}


#: Methods of `Asking`, and the words with which some or all of their calls are refused.
REFUSALS = {
    "asks": "",
    "asks_without": "",
    "asks_an_input": "",
    "asks_a_result": "whether a result of inference tensors requires grad",
    "inside": "",
    "partly_inside": "",
    "outside": "its result requires grad",
    "decorated": "",
    "decorated_writes": "",
    "decorated_asks": "",
    "detaches": "",
    "writes_inside": "an inference tensor, which the method writes",
    "enables": "its result requires grad",
    "enables_and_asks": "under torch.enable_grad()",
    "leaves_it_on": "leaves grad mode changed",
    "sets_and_resets": "",
    "asks_for_inference_mode": "is_inference_mode_enabled",
    "asks_for_an_inference_tensor": "is_inference",
    "differentiates": "torch.autograd.grad",
}
ASKING = {name: Method(name, (_x(),), net=Asking, refusal=words) for name, words in REFUSALS.items()}


def without_recording(mode: str) -> contextlib.AbstractContextManager[Any]:
    """Return the mode in which eager gives what a cached call under `mode` has to give: nothing is recorded."""
    return torch.no_grad() if mode == "grad" else MODES[mode]()
