"""The module's part of the key: whatever tells one structure from another is in it, and nothing hides a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gearcache.cache.keys.fingerprint import module_component
from gearcache.cache.keys.module_tree import named_buffers, named_modules, named_parameters


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


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())
        self.second = self.first
        self.scale = nn.Parameter(torch.ones(3))
        self.same = self.scale
        self.register_buffer("table", torch.ones(2))
        self.register_buffer("later", None)
        self.register_parameter("bias", None)
        self.child: Any = None


class Overriding(Tied):
    def named_parameters(self, *_: Any, **__: Any) -> Any:
        return iter(())


def test_everything_is_listed_at_each_of_its_places_as_torch_lists_it() -> None:
    module = Tied()
    assert list(named_modules(module)) == list(module.named_modules(remove_duplicate=False))
    for ours, theirs in (
        (named_parameters(module), module.named_parameters(remove_duplicate=False)),
        (named_buffers(module), module.named_buffers(remove_duplicate=False)),
    ):
        assert [(name, id(value)) for name, value in ours] == [(name, id(value)) for name, value in theirs]


def test_attributes_and_overrides_hide_nothing() -> None:
    plain, hidden = Tied(), Overriding()
    for name in ("modules", "named_modules", "parameters", "buffers", "named_buffers", "children"):
        object.__setattr__(hidden, name, 3)
        object.__setattr__(hidden.first, name, 3)
    for listed in (named_modules, named_parameters, named_buffers):
        assert [name for name, _ in listed(hidden)] == [name for name, _ in listed(plain)]
