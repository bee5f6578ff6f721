"""Models whose weights torchao has quantised, for a process that may import it: it sets options of Inductor."""

from __future__ import annotations

from typing import Any

import torch
import torchao.quantization as torchao
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config

CONFIGS = {
    "int8": torchao.Int8WeightOnlyConfig,
    "dynamic int8": torchao.Int8DynamicActivationInt8WeightConfig,
    "float8": torchao.Float8WeightOnlyConfig,
}


class Layers(nn.Module):
    """Two layers, and methods that return a quantised tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))

    def part(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, self.first.weight.to(torch.bfloat16)

    def whole(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, self.first.weight


class Neighbours(nn.Module):
    """Has tensors whose names are those of a weight with one of a part of it: `scale`, `qdata`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(quantised("int8").first.weight, requires_grad=False)
        self.weight_scale = nn.Parameter(torch.full((128,), 3.0), requires_grad=False)
        self.register_buffer("weight_qdata", torch.full((128,), 5.0))
        self.weight__scale, self.parts = nn.Parameter(torch.full((128,), 7.0)), nn.ParameterDict()
        self.parts["weight"], self.parts["weight_scale"] = self.weight, nn.Parameter(torch.full((128,), 9.0))

    def forward(self, x: Tensor) -> Tensor:
        scales = self.weight_scale + self.weight_qdata + self.weight__scale + self.parts["weight_scale"]
        return nn.functional.linear(x, self.parts["weight"]) * scales


def beside_neighbours() -> bool:
    """Whether a cached forward gives what the plain one does beside tensors with like names."""
    model = Neighbours().eval()
    cached = gearcache.cache_compile(model.forward, config=strict_config(), dynamic=False)
    x = torch.randn(4, 64)
    with torch.inference_mode():
        return torch.equal(cached(x), model.forward(x))


def quantised(kind: str) -> Any:
    """A model with weights that are the same each time."""
    torch.manual_seed(0)
    model = Layers().eval()
    torchao.quantize_(model, CONFIGS[kind]())
    return model


def served(kind: str, backend: str = "eager") -> dict[str, Any]:
    """Whether a cached forward gives what the plain one does for several sizes, and what it took."""
    model = quantised(kind)
    cached = gearcache.cache_compile(model.forward, config=strict_config(backend), dynamic=True)
    is_equal = True
    with torch.inference_mode():
        for rows in (4, 3, 9):
            x = torch.randn(rows, 64)
            is_equal &= torch.allclose(cached(x), model.forward(x), atol=1e-5, rtol=1e-4)
    return {"equal": is_equal, "traces": cached.stats.traces, "misses": cached.stats.misses}


def exchanged() -> list[bool]:
    """Whether a process that changes weights gets what eager gives, after each change."""
    model, other = quantised("int8"), quantised("dynamic int8")
    cached = gearcache.cache_compile(model.forward, config=strict_config(), dynamic=False)
    x = torch.randn(4, 64)
    found = []

    def check() -> None:
        with torch.inference_mode():
            found.append(torch.equal(cached(x), model.forward(x)))

    check()
    model.first.weight.qdata.neg_()
    check()
    model.first.weight.qdata = model.first.weight.qdata.clone().neg_()
    check()
    model.first.weight.scale = model.first.weight.scale * 2
    check()
    model.first.weight = other.first.weight
    check()
    model.second = nn.Linear(128, 64).eval()
    check()
    return found


def refusal(method: str) -> str:
    """What the error says where a quantised tensor would be returned."""
    cached = gearcache.cache_compile(getattr(quantised("int8"), method), config=strict_config(), dynamic=False)
    try:
        with torch.inference_mode():
            cached(torch.randn(4))
    except CaptureError as error:
        return str(error)
    return ""


def first_process() -> dict[str, Any]:
    """Everything that a process with an empty cache shows."""
    return {
        "served": {kind: served(kind) for kind in CONFIGS},
        "compiled": served("dynamic int8", "inductor"),
        "exchanged": exchanged(),
        "beside neighbours": beside_neighbours(),
        "refusals": {method: refusal(method) for method in ("part", "whole")},
    }
