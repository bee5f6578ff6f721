"""Changes: contexts in which a process makes the call, and what they are made of."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.staleness.edits import EDITS, HARMLESS


@dataclass(frozen=True)
class Change:
    """A context around one call: what a process does after the module was made."""

    method: str
    apply: Callable[[Any, Any], Any]
    words: tuple[str, ...]


#: What a process may do that is a miss, and what stays a hit.
CHANGES: dict[str, Change] = {}
HITTING: dict[str, Change] = {}


def change(
    method: str, *words: str, table: dict[str, Change] = CHANGES
) -> Callable[[Callable[..., Iterator[None]]], Callable[..., Iterator[None]]]:
    def add(function: Callable[..., Iterator[None]]) -> Callable[..., Iterator[None]]:
        name = function.__name__.replace("_", " ")
        assert name not in {*CHANGES, *HITTING, *EDITS, *HARMLESS}
        table[name] = Change(method, contextlib.contextmanager(function), words)
        return function

    return add


hit = functools.partial(change, table=HITTING)


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def called(function: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    function(value)
    try:
        yield
    finally:
        function(before)


def double(module: Any, *arguments: Any) -> Any:
    return arguments[-1] * 2


def tripled(self: Any, x: Any) -> Any:
    return x * 3


@contextlib.contextmanager
def removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
