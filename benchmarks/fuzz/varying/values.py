"""The numbers and sizes of a case: their possible values, how a call passes them, and how they change between calls."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: The value of each size, int and float of a case in one call.
Values = dict[str, Any]

#: How large a number may be: `small` for repetitions, `size` for lengths, `plain` for arithmetic only.
KINDS = ("small", "size", "plain")
SMALL = (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6)
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 12)
LARGE = (16, 33, 40, 129, 300)
HUGE = (-7, 1000, 2**31 - 1, 2**31 + 1, 2**40, -(2**33))
#: Floats (`real`), and ints in their place.
REALS = (0.1, 0.3, 0.7, 0.9, 1.0, 1.5, 2.5, 3.0, 10.0, -0.5, -1.0, 1e-3, 1e6, 0.1 + 0.2, 1 / 3)
ODD_REALS = (0.0, -0.0, 1e308, 5e-324, 2.0**53, math.inf, math.nan, 1, 2)

#: The place of an int in a call: `module` is an attribute that the caller sets before it.
PLACES = (
    "positional",
    "positional",
    "positional",
    "keyword",
    "keyword",
    "dict",
    "tuple",
    "list",
    "dataclass",
    "nested",
    "module",
    "module",
    "module list",
    "module dict",
)


@dataclass
class Number:
    """One int, bool (`flag`) or float (`real`) of the calls. `read` is how the method reads it."""

    name: str
    kind: str
    place: str
    read: str
    #: free, walk, few, equal, constant: how it changes from call to call.
    habit: str
    few: tuple[float, ...] = ()
    #: The number that it sometimes equals.
    twin: str = ""


@dataclass
class Parameter:
    """One parameter of the method: how its value is written, from the values of a call."""

    name: str
    text: Callable[[Values], str]
    default: str | None = None
    is_keyword: bool = False
    is_tensor: bool = False


def any_value(chance: random.Random, kind: str) -> float:
    """Draw a value of a kind: mostly a few, now and then 0, 1, a negative or a big one."""
    luck = chance.random()
    if kind == "real":
        return chance.choice(ODD_REALS if luck < 0.1 else REALS)
    if luck < 0.05:
        return -chance.randrange(1, 4)
    if kind == "flag":
        return chance.randrange(2)
    if kind == "small":
        return chance.choice(SMALL)
    if luck > 0.96 or (kind == "plain" and luck > 0.9):
        return chance.choice(HUGE if kind == "plain" else LARGE)
    return chance.choice(SIZES)


def any_size(chance: random.Random) -> int:
    """Draw the size of a dim."""
    return chance.choice(LARGE[:3]) if chance.random() < 0.04 else chance.choice(SIZES)


def next_values(
    chance: random.Random, numbers: Sequence[Number], sizes: Sequence[str], earlier: Sequence[Values], gears: list[int]
) -> Values:
    """Draw the values of one more call: new ones, an earlier call's, or the last ones with one or two changed."""
    luck = chance.random()
    if earlier and luck < 0.15:
        return dict(chance.choice(earlier))
    names = [*sizes, *(number.name for number in numbers)]
    changed = set(names)
    if earlier and luck < 0.55:
        changed = set(chance.sample(names, min(len(names), chance.choice([1, 1, 2]))))
    found = dict(earlier[-1]) if earlier else {}
    for size in sizes:
        if size in changed:
            in_gears = size == "B" and gears and chance.random() < 0.88
            found[size] = chance.choice(gears) if in_gears else any_size(chance)
    for number in numbers:
        if number.name in changed or number.name not in found:
            found[number.name] = _next(chance, number, found)
    return found


def _next(chance: random.Random, number: Number, found: Values) -> Any:
    if number.habit == "constant":
        return number.few[0]
    if number.habit == "few":
        return chance.choice(number.few)
    if number.habit == "walk" and number.name in found:
        return found[number.name] + 1
    if number.habit == "equal" and number.twin in found and chance.random() < 0.6:
        return found[number.twin]
    return any_value(chance, number.kind)
