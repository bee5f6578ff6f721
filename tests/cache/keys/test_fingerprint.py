"""The module's part of the key: whatever tells one structure from another is in it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gearcache.cache.keys.fingerprint import module_component


def made(change: Callable[[nn.Module], object] = lambda module: None) -> nn.Module:
    module = nn.Sequential()
    module.add_module("a", nn.Linear(4, 4))
    module.add_module("b", nn.Linear(4, 4))
    module.add_module("c", nn.Linear(4, 4))
    module.register_buffer("table", torch.zeros(1, 6))
    change(module)
    return module


def put(name: str, tensor: torch.Tensor) -> Callable[[nn.Module], object]:
    return lambda module: module.register_buffer(name, tensor)


def tie(one: str, other: str) -> Callable[[nn.Module], object]:
    return lambda module: setattr(module.get_submodule(other), "weight", module.get_submodule(one).weight)


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "nothing": lambda module: None,
    "dtype": put("table", torch.zeros(1, 6, dtype=torch.float16)),
    "device": put("table", torch.zeros(1, 6, device="meta")),
    "size": put("table", torch.zeros(1, 5)),
    "size of the same strides": put("table", torch.zeros(2, 6)),
    "rank": put("table", torch.zeros(1, 1, 6)),
    "stride": put("table", torch.zeros(6, 2)[:, 1:].t()),
    "name": put("tables", torch.zeros(1, 6)),
    "a name like a description": put("table 2: x", torch.zeros(1, 6)),
    "grad": lambda module: module.get_submodule("b").weight.requires_grad_(False),
    "a with b": tie("a", "b"),
    "a with c": tie("a", "c"),
    "b with c": tie("b", "c"),
    "class": lambda module: module.add_module("c", nn.Bilinear(4, 1, 4)),
    "one less": lambda module: module.register_buffer("table", None),
}


def test_each_change_gives_another_component() -> None:
    found = {name: repr(module_component(made(change))) for name, change in CHANGES.items()}
    assert len(set(found.values())) == len(found), found


def test_values_are_no_part_of_it() -> None:
    def filled(module: nn.Module) -> None:
        for tensor in (*module.parameters(), *module.buffers()):
            torch.nn.init.uniform_(tensor.data)

    assert module_component(made(filled)) == module_component(made())
