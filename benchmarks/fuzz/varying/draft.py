"""A draft of one module: its parameters and state, and the numbers that lines may use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.fuzz.builder import HEAD, Argument, Builder
from benchmarks.fuzz.varying.values import KINDS, REALS, Number, Parameter, Values

SHORT_HEAD = """import dataclasses
import math

import torch
import torch.nn.functional as F

from benchmarks.fuzz.world import cached
"""
#: The values with which lines are tried.
TRIED: Values = {"B": 3, "L": 5, "K": 2, "T": 4}
_TRIED_NUMBERS = (2, 3, 1, 4)
SLOT = re.compile(r"\{([a-z])(\d?)\}")


@dataclass
class Draft(Builder):
    """A builder whose arguments are derived from values of sizes and ints."""

    numbers: list[Number] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    #: The results of lines: ints by kind, floats, bools.
    ints: dict[str, str] = field(default_factory=dict)
    floats: list[str] = field(default_factory=list)
    bools: list[str] = field(default_factory=list)
    #: How the caller sets attributes on the module, before each call.
    setters: list[Any] = field(default_factory=list)
    #: Whether a call depends on earlier calls.
    has_order: bool = False
    tried: Values = field(default_factory=lambda: dict(TRIED))

    def text(self, body: list[str] | None = None, result: str = "None") -> str:
        """Return the file."""
        return super().text(body, result).replace(HEAD, SHORT_HEAD)

    def add_parameter(self, parameter: Parameter) -> None:
        """Add a parameter."""
        self.parameters.append(parameter)
        self.arguments.append(
            Argument(
                parameter.name,
                lambda chance, batch, number: parameter.text(self.tried),
                parameter.default,
                parameter.is_tensor,
                parameter.is_keyword,
            )
        )
        self._space = None

    def add_number(self, name: str, kind: str, place: str, read: str) -> Number:
        """Add an int of the calls, a bool (`flag`) or a float (`real`)."""
        chance = self.chance
        habit = chance.choice(["free", "free", "free", "walk", "few", "equal", "constant"])
        few = tuple(chance.choice(REALS if kind == "real" else [0, 1, 2, 3, 4, 5, 8]) for _ in range(3))
        twin = chance.choice(self.numbers).name if self.numbers else chance.choice(self.sizes)
        number = Number(name, kind, place, read, habit, few, twin)
        self.tried[name] = 1 if kind == "flag" else _TRIED_NUMBERS[len(self.numbers) % len(_TRIED_NUMBERS)]
        self.numbers.append(number)
        if kind == "real":
            self.tried[name] = chance.choice(REALS)
            self.floats.append(read)
        elif kind == "flag":
            self.bools.append(read)
        else:
            self.ints[read] = kind
        return number

    # Parts of lines

    def line(self, template: str) -> bool:
        """Add a line whose slots are filled with available values; False if it cannot be run."""
        chosen: dict[str, str] = {}
        made: list[tuple[str, str]] = []
        for slot in SLOT.finditer(template):
            if slot.group() not in chosen:
                text = self._fill(slot.group(1), slot.group(2), made)
                if text is None:
                    return False
                chosen[slot.group()] = text
        text = SLOT.sub(lambda slot: chosen[slot.group()], template)
        if not self.statement(text):
            return False
        for kind, name in made:
            if kind in KINDS:
                self.ints[name] = kind
            elif kind == "float":
                self.floats.append(name)
            elif kind == "bool":
                self.bools.append(name)
        return True

    def _fill(self, letter: str, digit: str, made: list[tuple[str, str]]) -> str | None:
        if letter in _MADE:
            made.append((_MADE[letter], self.name(letter)))
            return made[-1][1]
        if letter in "fgtw":
            return self._tensor(letter, int(digit) if digit else None)
        if letter == "q":
            return self.number_text("float")
        if letter == "b":
            return self.condition()
        return self.number_text({"s": "small", "n": "size", "m": "size", "a": "plain", "c": "plain"}[letter])

    def _tensor(self, letter: str, dims: int | None) -> str | None:
        def fits(value: torch.Tensor) -> bool:
            is_float = value.dtype.is_floating_point
            is_right = letter == "t" or is_float == (letter in "fg")
            return is_right and (dims is None or value.dim() == dims) and value.numel() < 100_000

        found = self.tensors(fits)
        if not found:
            return None
        return self.chance.choice(found[-3:] if self.chance.random() < 0.6 else found)

    def number_text(self, kind: str, depth: int = 0) -> str:
        """Return an expression of a kind: an int of the call, of the module, a size, or arithmetic of those."""
        chance = self.chance
        if kind == "float":
            if self.floats and (depth > 0 or chance.random() < 0.4):
                return chance.choice(self.floats)
            templates = (*_FLOATS, *_OF_FLOATS) if self.floats else _FLOATS
            parts = {"a": self.number_text("plain", 1), "n": self.number_text("size", 1)}
            parts |= {name: self.number_text("float", 1) for name in "qr" if self.floats}
            return chance.choice(templates).format(**parts)
        allowed = KINDS[: KINDS.index(kind) + 1]
        found = [text for text, own in self.ints.items() if own in allowed]
        luck = chance.random()
        if found and (depth > 1 or luck < 0.6):
            return chance.choice(found)
        if kind != "small" and (not found or luck < 0.72):
            return self._size()
        if not found:
            return str(chance.choice([1, 2, 3]))
        parts = {name: self.number_text(kind, depth + 1) for name in "xy"}
        parts["s"] = self.number_text("small", 2)
        parts["b"] = self.condition(2)
        return "(" + chance.choice(_ARITHMETIC[kind]).format(**parts) + ")"

    def _size(self) -> str:
        name = self.pick(lambda value: value.dim() > 0)
        dims = self.space()[name].dim()
        dim = self.chance.choice([0, dims - 1, -1])
        return f"{name}.{self.chance.choice([f'size({dim})', f'shape[{dim}]'])}"

    def condition(self, depth: int = 0) -> str:
        """Return the text of a bool expression."""
        chance = self.chance
        if self.bools and chance.random() < 0.35:
            return chance.choice(self.bools)
        if self.floats and chance.random() < 0.35:
            template, kind = chance.choice(_CONDITIONS_OF_FLOATS), "float"
        else:
            template, kind = chance.choice(_CONDITIONS), "plain"
        return template.format(a=self.number_text(kind, depth + 1), c=self.number_text(kind, depth + 1))


_MADE = {"v": "tensor", "i": "size", "j": "small", "p": "plain", "r": "float", "h": "bool", "l": "list"}
_FLOATS = (
    "{a} * 0.5",
    "{a} / 2",
    "1.0 / {a}",
    "{n} ** -0.5",
    "{a} ** 0.5",
    "float({a})",
    "math.sqrt({n})",
    "0.1 * {a} + 1.5",
    "{a} / {n}",
    "1 - {a} / 10",
    "min({a}, 2.5)",
    "math.log(abs({a}) + 1)",
)
#: Of floats, if there are any.
_OF_FLOATS = (
    "{q} * 0.1 * 10",
    "(1.0 - {q} / 3)",
    "({q} + {r})",
    "({q} - {r})",
    "({q} * {r} + 0.1)",
    "({q} / {r})",
    "({q} * {a})",
    "({q} + {n})",
    "min(max({q}, 0.1), 0.9)",
    "max({q}, {r})",
    "abs({q} - 1.5)",
    "{q} ** 2",
    "math.sqrt(abs({q}))",
    "round({q}, 1)",
    "({q} if {q} > {r} else {r})",
)
_ARITHMETIC = {
    "small": ("{x} % 3", "min({x}, {y})", "{x} // 2", "max({x}, 1)", "{x} & 3", "int({b})", "{x} - 1"),
    "size": (
        "{x} + 1",
        "{x} - 1",
        "{x} // 2",
        "{x} * 2",
        "min({x}, {y})",
        "max({x}, 0)",
        "max({x}, {y})",
        "{x} + {s}",
        "{x} - {y}",
        "-{x}",
        "{x} % 4",
        "{x} if {b} else {y}",
        "({x} + 3) // 4",
        "int({x} * 0.5)",
        "math.ceil({x} / 3)",
        "round({x} / 2)",
        "int(math.sqrt(abs({x})))",
        "int({x} * 0.7)",
        "abs({x})",
    ),
    "plain": (
        "{x} + {y}",
        "{x} - {y}",
        "{x} * {y}",
        "-{x}",
        "{x} // 3",
        "{x} % 5",
        "{x} ** 2",
        "{x} << 1",
        "{x} >> 1",
        "{x} & 6",
        "abs({x})",
        "{x} * 2 + 1",
        "{x} if {b} else {y}",
        "round({x} / 2)",
        "int({x} * 1.5)",
        "-{x} // 2",
        "divmod({x}, 4)[1]",
        "int({b}) + {x}",
    ),
}
_CONDITIONS_OF_FLOATS = (
    "{a} > 0.5",
    "{a} == 1.0",
    "{a} == {c}",
    "{a} < {c}",
    "{a} * 2 >= 1.8",
    "{a} + {c} != 0.3",
    "{a}",
    "0.1 < {a} <= 1",
    "{a} != {a}",
    "{a} in (0.7, 0.9)",
)
_CONDITIONS = (
    "{a} > 3",
    "{a} == 0",
    "{a} == {c}",
    "{a} % 4 == 0",
    "{a} < {c}",
    "{a} != 1",
    "bool({a})",
    "not {a}",
    "{a} in (1, 3, 5)",
    "0 <= {a} < 4",
    "{a} >= {c} or {a} == 2",
    "isinstance({a}, int)",
)
