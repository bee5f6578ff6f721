"""Modules, parameters and buffers of a module: as torch lists them, whatever hides its methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gearcache.cache.keys.module_tree import hidden_names, named_buffers, named_modules, named_parameters


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


@pytest.mark.parametrize("make", [lambda module: torch.jit.trace(module, torch.ones(2, 3)), torch.jit.script])
def test_what_a_module_of_torchscript_holds_is_listed(make: Any) -> None:
    module = nn.Sequential(make(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()))
    assert [name for name, _ in named_modules(module)] == ["", "0", "0.0", "0.1"]
    assert list(named_parameters(module)) == list(module.named_parameters())
    assert [name for name, _ in named_buffers(module)] == [name for name, _ in module.named_buffers()]
    assert hidden_names(named_modules(module)) == []
