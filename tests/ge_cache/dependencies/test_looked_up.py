"""A registry of a user's own class: what a trace looks up in it is evidence, and whatever else it asks, all of it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gearcache.errors import CaptureError, UncacheableGuard
from gearcache.ge_cache.capture.capture import capture_method
from gearcache.ge_cache.capture.captured import Capture
from gearcache.guards.access import Scope, Walker
from gearcache.guards.evidence.checks import first_failure


class Registry(dict[str, int]):
    """As libraries have them: a method of its own, and the lookup of `dict`."""

    def find(self, name: str) -> int:
        return super().get(name) or 0


REGISTRY: dict[str, int] = Registry()

LOOKUPS: dict[str, Callable[[Any], Any]] = {
    "get": lambda r: r.get("a"),
    "get, absent": lambda r: 1 if r.get("z") is None else 2,
    "method": lambda r: r.find("a"),
    "item": lambda r: r["a"],
    "in": lambda r: 3 if "a" in r else 2,
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "truth": lambda r: 3 if r else 2,
    "iterate": lambda r: sum(r[name] for name in r),
    "items": lambda r: sum(len(name) * value for name, value in r.items()),
    "equal": lambda r: 3 if r == {"a": 2, "b": 3} else 2,
    "proxy, truth": lambda r: 3 if types.MappingProxyType(r) else 2,
    "text": lambda r: len(str(r)),
}
#: Of the others, those that may not be refused.
SERVED = ("len", "truth", "iterate", "items")
CHANGES: dict[str, Callable[[], dict[str, int]]] = {
    "more at the end": lambda: {"a": 2, "b": 3, "more": 9},
    "more in front": lambda: {"more": 9, "a": 2, "b": 3},
    "other order": lambda: {"b": 3, "a": 2},
    "another value": lambda: {"a": 5, "b": 3},
    "false value": lambda: {"a": 0, "b": 3},
    "key gone": lambda: {"b": 3},
    "key come": lambda: {"a": 2, "b": 3, "z": 8},
    "empty": dict,
}
UNRELATED = ("more at the end", "more in front", "other order")


class Method:
    def __init__(self, use: Callable[[Any], Any]) -> None:
        self.use = use

    def run(self, x: Tensor) -> Tensor:
        return x * self.use(REGISTRY)


def fill(content: dict[str, int]) -> None:
    """Change the registry in place, as those who register do."""
    REGISTRY.clear()
    REGISTRY.update(content)


def outcome(method: Method) -> Any:
    try:
        return method.run(torch.ones(1)).item()
    except Exception as error:
        return type(error)


def captured(method: Method) -> Capture:
    fill({"a": 2, "b": 3})
    return capture_method(method.run, (torch.ones(1),), {}, method="run", dynamic=False)


def fails(capture: Capture, method: Method) -> bool:
    scope = Scope({"self": method, "x": torch.ones(1)}, globals())
    return first_failure(capture.checks, Walker(scope)) is not None


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_is_compared_and_entries_that_it_does_not_touch_change_nothing(name: str) -> None:
    method = Method(LOOKUPS[name])
    capture = captured(method)
    assert_never_missed(capture, method)
    for change in UNRELATED:
        fill(CHANGES[change]())
        assert not fails(capture, method), change


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_at_all_is_compared_or_refused(name: str) -> None:
    method = Method(OTHERS[name])
    try:
        capture = captured(method)
    except (CaptureError, UncacheableGuard):
        assert name not in SERVED
        return
    assert_never_missed(capture, method)
    if name in SERVED:
        fill(CHANGES["more in front"]())
        assert fails(capture, method)


def assert_never_missed(capture: Capture, method: Method) -> None:
    """Fail unless each change that changes the result is seen."""
    before = outcome(method)
    assert not fails(capture, method)
    for change, content in CHANGES.items():
        fill(content())
        assert outcome(method) == before or fails(capture, method), change
        fill({"a": 2, "b": 3})
