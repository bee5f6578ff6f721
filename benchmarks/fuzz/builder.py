"""Builds a module line by line; each line is tried on real tensors before it is kept."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.fuzz import names, world

#: The value that stands for the batch size in shapes of arguments, and the batch size with which lines are tried.
BATCH = "B"
TRIED = 3

HEAD = """import abc
import collections
import dataclasses
import enum
import functools
import math
import operator
import os
import typing

import torch

from benchmarks.fuzz.world import cached
"""


@dataclass
class Argument:
    """One parameter of the method: how a call writes its value, from a batch size and the number of the call."""

    name: str
    value: Callable[[random.Random, int, int], str]
    default: str | None = None
    is_tensor: bool = False
    #: A keyword-only parameter.
    is_keyword: bool = False
    #: `*` or `**`: the value is a list or a dict.
    stars: str = ""


@dataclass
class Edit:
    """A change of the module, its file or the process. `early`: also possible before the first call of a process."""

    label: str
    text: str
    early: bool = True
    scope: str = "world"


@dataclass
class Rewrite:
    """A change of the file between two processes."""

    label: str
    old: str
    new: str


@dataclass
class Builder:
    """The parts of one module, and a live instance of the module so far."""

    chance: random.Random
    top: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    arguments: list[Argument] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    #: The text of the model's base classes.
    bases: str = "torch.nn.Module"
    #: Requirements of features on the rest of the case.
    wants: dict[str, Any] = field(default_factory=dict)
    method: str = "compute"
    #: Variables that other lines may not use.
    hidden: set[str] = field(default_factory=set)
    #: The feature that is adding lines, and the lines that each feature added.
    feature: str = ""
    origins: dict[str, list[str]] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _space: dict[str, Any] | None = None

    # Names

    def name(self, kind: str = "v") -> str:
        """Return a free name: mostly a plain one, sometimes one that other code uses."""
        while True:
            odd = self.wants.get("odd names", 0.02)
            found = names.odd(self.chance) if self.chance.random() < odd else f"{kind}{len(self._taken)}"
            if found not in self._taken and found not in names.NEEDED:
                self._taken.add(found)
                return found

    # Parts

    def add_top(self, text: str) -> None:
        """Add lines to the top level of the file."""
        self._note(text)
        self.top.append(text)
        self._space = None

    def add_member(self, text: str) -> None:
        """Add a method or class attribute to the model."""
        self._note(text)
        self.members.append(text)
        self._space = None

    def add_setup(self, text: str) -> None:
        """Add lines to `__init__`."""
        self._note(text)
        self.setup.append(text)
        self._space = None

    def add_edit(self, label: str, text: str, *, early: bool = True, scope: str = "world") -> None:
        """Offer an edit."""
        self.edits.append(Edit(label, text, early, scope))

    def add_rewrite(self, label: str, old: str, new: str) -> None:
        """Offer a change of the file."""
        self.rewrites.append(Rewrite(label, old, new))

    def add_argument(
        self,
        value: Callable[[random.Random, int, int], str],
        *,
        name: str | None = None,
        default: str | None = None,
        is_tensor: bool = False,
        is_keyword: bool = False,
        stars: str = "",
    ) -> str:
        """Add a parameter; `value(chance, batch, number of the call)` is the text of the value to pass."""
        if name is None:
            name = self.name("a")
        else:
            self._taken.add(name)
        self.arguments.append(Argument(name, value, default, is_tensor, is_keyword, stars))
        self._space = None
        return name

    def add_tensor(
        self,
        shape: Sequence[Any] = (BATCH, 4),
        dtype: str = "float32",
        layouts: Sequence[str] = ("plain",),
        **options: Any,
    ) -> str:
        """Add a parameter that is a tensor."""

        def value(chance: random.Random, batch: int, number: int) -> str:
            sizes = tuple(batch if size == BATCH else size for size in shape)
            layout = chance.choice(list(layouts))
            parts = [repr(sizes), str(chance.randrange(100)), f'"{dtype}"', f'"{layout}"']
            while len(parts) > 2 and parts[-1] in ('"plain"', '"float32"'):
                parts.pop()
            return f"tensor({', '.join(parts)})"

        return self.add_argument(value, is_tensor=True, **options)

    def add_choice(self, *texts: str, default: str | None = None, **options: Any) -> str:
        """Add a parameter with one of these values; mostly the first."""

        def value(chance: random.Random, batch: int, number: int) -> str:
            return texts[0] if chance.random() < 0.6 else chance.choice(texts)

        return self.add_argument(value, default=default, **options)

    def _note(self, text: str) -> None:
        if self.feature:
            self.origins.setdefault(self.feature, []).extend(line.strip() for line in text.splitlines())

    def statement(self, text: str, *, tried: bool = True) -> bool:
        """Add a line to the method if it can be run after the lines before it."""
        if tried:
            space = self.space()
            before = dict(space)
            try:
                with torch.no_grad():
                    exec(compile(text, "<line>", "exec"), space)  # noqa: S102
            except Exception:
                space.clear()
                space.update(before)
                return False
        self._note(text)
        self.body.append(text)
        return True

    def set(self, expression: str, kind: str = "v") -> str | None:
        """Add `name = expression`; returns the name, or None if the expression cannot be run."""
        name = self.name(kind)
        return name if self.statement(f"{name} = {expression}") else None

    def give(self, *expressions: str) -> None:
        """Add these to the result."""
        self.given += expressions

    # What there is

    def space(self) -> dict[str, Any]:
        """Return the variables of the method after the lines so far."""
        if self._space is None:
            self._space = self._made()
        return self._space

    def _made(self) -> dict[str, Any]:
        module = types.ModuleType("fuzz_tried")
        plain = world.World.__new__(world.World)
        plain.is_cached = False
        sys.modules["fuzz_tried"] = module
        chance = random.Random(1)
        with plain.entered(), torch.no_grad():
            torch.manual_seed(0)
            exec(compile(self.text(["pass"]), "<fuzz>", "exec"), module.__dict__)  # noqa: S102
            instance = module.Model()
            space = {**module.__dict__, "self": instance}
            helpers = {**space, "s": module, "m": instance, "tensor": world.tensor, "torch": torch}
            for argument in self.arguments:
                value = eval(argument.value(chance, TRIED, 0), helpers)  # noqa: S307
                space[argument.name] = tuple(value) if argument.stars == "*" else value
            for line in self.body:
                try:
                    exec(compile(line, "<line>", "exec"), space)  # noqa: S102
                except Exception:
                    continue
        return space

    def instance(self) -> Any:
        """Return the live model."""
        return self.space()["self"]

    def tensors(self, fits: Callable[[torch.Tensor], bool] = lambda _: True) -> list[str]:
        """Return the tensor variables for which `fits` is true."""
        return [
            name
            for name, value in self.space().items()
            if isinstance(value, torch.Tensor) and name.isidentifier() and name not in self.hidden and fits(value)
        ]

    def pick(self, fits: Callable[[torch.Tensor], bool] = lambda _: True) -> str:
        """Return one of these variables, preferably a late one; adds an argument if there is none."""
        found = self.tensors(fits)
        if not found:
            return self.add_tensor()
        return self.chance.choice(found[-4:] if self.chance.random() < 0.7 else found)

    def main(self) -> str:
        """Return a float tensor of shape (batch, 4)."""
        return self.pick(lambda value: value.dtype == torch.float32 and tuple(value.shape) == (TRIED, 4))

    # The text

    def signature(self) -> str:
        """Return the parameters in the method's source."""
        by_position = [item for item in self.arguments if not item.is_keyword and not item.stars]
        ordered = sorted(by_position, key=lambda item: item.default is not None)
        keywords = [item for item in self.arguments if item.is_keyword]
        rest = next((f"*{item.name}" for item in self.arguments if item.stars == "*"), "*" if keywords else "")
        more = [f"**{item.name}" for item in self.arguments if item.stars == "**"]
        written = [self.wants.get("self name", "self")]
        written += [_parameter(item) for item in ordered]
        if self.wants.get("slash") and ordered and not self.wants.get("self name"):
            written.insert(1 + self.wants["slash"] % len(ordered), "/")
        written += [rest] if rest else []
        written += [_parameter(item) for item in keywords]
        return ", ".join([*written, *more])

    def text(self, body: list[str] | None = None, result: str = "None") -> str:
        """Return the file."""
        lines = [HEAD, *self.top, "", f"class Model({self.bases}):"]
        lines += _indented(self.members, 1)
        lines += ["    def __init__(self):", "        super().__init__()", *_indented(self.setup, 2), ""]
        lines += self.wants.get("decorators", []) if body is None else []
        lines += self.wants.get("inner decorators", [])
        lines.append(f"    def {self.method}({self.signature()}):")
        if body is None and self.wants.get("self name"):
            lines.append(f"        self = {self.wants['self name']}")
        lines += _indented(self.body if body is None else body, 2)
        lines.append(f"        return {result}")
        return "\n".join(lines) + "\n"


def _parameter(item: Argument) -> str:
    return item.name if item.default is None else f"{item.name}={item.default}"


def _indented(parts: list[str], depth: int) -> list[str]:
    return [("    " * depth + line) if line else "" for part in parts for line in part.splitlines()]
