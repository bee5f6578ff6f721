"""Whether two modules are equal in what a trace reached, by the rows of their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from gearcache.cache.keys.fingerprint import module_component
from gearcache.cache.keys.module_parts import unreached_in


def _model(*names: str, size: int = 4) -> nn.Module:
    model = nn.Module()
    model.base = nn.Linear(4, 4)
    model.adapters = nn.ModuleDict({name: nn.Linear(4, size, bias=False) for name in names})
    return model


#: What is done to the base of a model.
CHANGES: dict[str, Callable[[Any], object]] = {
    "other size": lambda model: setattr(model, "base", nn.Linear(4, 5)),
    "other class": lambda model: setattr(model, "base", nn.Identity()),
    "no bias": lambda model: setattr(model.base, "bias", None),
    "tied": lambda model: setattr(model.adapters["a"], "weight", model.base.weight),
    "frozen": lambda model: model.base.weight.requires_grad_(False),
    "one more buffer": lambda model: model.base.register_buffer("scale", model.base.weight.detach()),
}


def _changed(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = _model("a", "c")
        CHANGES[name](model)
        return model

    return make


def _reordered() -> nn.Module:
    model = nn.Module()
    model.adapters = nn.ModuleDict({"a": nn.Linear(4, 4, bias=False)})
    model.base = nn.Linear(4, 4)
    return model


STORED = module_component(_model("a", "b"))


def is_alike(wanted: Any, stored: Any, unreached: list[str]) -> bool:
    return unreached_in(wanted, stored, unreached) is not None


@pytest.mark.parametrize(
    ("make", "unreached", "expected"),
    [
        (lambda: _model("a", "b"), [], True),
        (lambda: _model("a", "c"), ["adapters.b"], True),
        (lambda: _model("a"), ["adapters.b"], True),
        (lambda: _model("c", "a", "d"), ["adapters.b"], True),
        (lambda: _model("a", "c", size=5), ["adapters.a", "adapters.b"], True),
        (lambda: _model("a", "c"), [], False),
        (lambda: _model("c"), ["adapters.b"], False),
        (lambda: _model("a", "c", size=5), ["adapters.b"], False),
        *[(_changed(name), ["adapters.b"], False) for name in CHANGES],
        (_changed("other size"), ["adapters", "base"], True),
        (_changed("tied"), ["adapters"], True),
        (_reordered, ["adapters.b"], False),
    ],
)
def test_what_was_reached_has_to_be_equal(make: Callable[[], nn.Module], unreached: list[str], expected: bool) -> None:
    assert is_alike(module_component(make()), STORED, unreached) is expected


def test_what_is_unreached_is_named_as_the_wanted_module_has_it() -> None:
    other = _model("c", "a", "d")
    other.adapters["d"] = nn.Sequential(nn.Linear(2, 2))
    assert unreached_in(module_component(other), STORED, ["adapters.b"]) == ["adapters.c", "adapters.d"]
    assert unreached_in(module_component(other), STORED, ["adapters"]) == ["adapters"]


@pytest.mark.parametrize(
    "stored", [None, [], {}, {"classes": 1}, {"classes": [["a"]]}, {**STORED, "parameters": ["no name"]}]
)
def test_unknown_forms_are_not_alike(stored: Any) -> None:
    assert not is_alike(module_component(_model("a", "b")), stored, [])
