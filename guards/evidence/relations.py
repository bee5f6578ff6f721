"""Checks that relate objects at several paths: `same`, `distinct`, `instance`, `subclass` and `numbers`.

`instance` and `subclass` expect `[path of the class, answer]`. `same` expects a path in plain form. `distinct` expects
`[count, paths]`: the value and the first `count` of the others must be different objects, from each other and from the
rest; objects in the rest may be identical. `numbers` expects `[conditions, [[name, path], …]]`: all paths lead to ints,
and with them as these names all conditions hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from gearcache.guards.access import Access
from gearcache.guards.gears.expressions import checked_expression, expression_function

RELATIONS = frozenset({"same", "distinct", "instance", "subclass", "numbers"})
_QUESTIONS: dict[str, Callable[[Any, Any], bool]] = {"instance": isinstance, "subclass": issubclass}


def others(kind: str, expected: Any) -> list[Access]:
    """Return the other paths of a relation."""
    if kind in _QUESTIONS:
        return [Access.from_plain(expected[0])]
    if kind == "numbers":
        return [Access.from_plain(path) for _, path in expected[1]]
    return [Access.from_plain(expected)] if kind == "same" else [Access.from_plain(path) for path in expected[1]]


def relation_holds(kind: str, expected: Any, value: Any, counterparts: Sequence[Any]) -> bool:
    """Whether a relation holds between a value and the objects at the other paths, in order."""
    if kind in _QUESTIONS:
        try:
            return _QUESTIONS[kind](value, counterparts[0]) is expected[1]
        except Exception:  # an error in the class's own code
            return False
    if kind == "numbers":
        values = {str(name): other for (name, _), other in zip(expected[1], counterparts, strict=True)}
        if any(type(other) is not int for other in counterparts):
            return False
        return all(expression_function(text, tuple(values))(**values) for text in expected[0])
    if kind == "same":
        return all(value is other for other in counterparts)
    single = int(expected[0])
    rest = {id(other) for other in counterparts[single:]}
    return len({id(value), *map(id, counterparts)}) == 1 + single + len(rest)


def numbers_text(expected: Any) -> str:
    """Return the conditions of `numbers` as text for people, over paths."""
    texts = {str(name): Access.from_plain(path).text for name, path in expected[1]}
    return re.sub(r"\bn\d+\b", lambda match: texts[match[0]], " and ".join(expected[0]))


def numbers_source(expected: Any, counterparts: Sequence[str], name: Callable[[Any], str], prefix: str) -> str:
    """Return `numbers` as a boolean expression, given the sources of the ints; its own names begin with a prefix."""
    local_names = {str(symbol): f"{prefix}{index}" for index, (symbol, _) in enumerate(expected[1])}
    local_names |= {function.__name__: name(function) for function in (min, max, float)}
    kinds = [
        f"{name(type)}({local_names[str(symbol)]} := {source}) is {name(int)}"
        for (symbol, _), source in zip(expected[1], counterparts, strict=True)
    ]
    texts = [
        re.sub(r"\b[a-z]\w*\b", lambda match: local_names.get(match[0], match[0]), checked_expression(text))
        for text in expected[0]
    ]
    return " and ".join([*kinds, *(f"({text})" for text in texts)])


def relation_source(
    kind: str, expected: Any, value: str, counterparts: Sequence[str], name: Callable[[Any], str]
) -> str:
    """Return a relation as a boolean expression, given the sources of the value and of the others.

    `name` gives the name of a builtin in that source.
    """
    if kind in _QUESTIONS:
        return f"{name(_QUESTIONS[kind])}({value}, {counterparts[0]}) is {expected[1]!r}"
    if kind == "same":
        return f"{value} is {counterparts[0]}"
    if len(counterparts) == 1:
        return f"{value} is not {counterparts[0]}"
    single, length = int(expected[0]), name(len)
    numbers = [f"{name(id)}({text})" for text in (value, *counterparts)]
    rest = numbers[1 + single :]
    count = f"{1 + single} + {length}({{{', '.join(rest)}}})" if len(rest) > 1 else str(len(numbers))
    return f"{length}({{{', '.join(numbers)}}}) == {count}"
