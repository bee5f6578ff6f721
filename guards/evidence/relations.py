"""The kinds of checks that relate objects at several paths, a row each.

`subclass` expects `[path of a class, answer]`, of a class, also for `isinstance` of an object of it.
`distinct` expects `[count, paths]`: the value and the first `count` of the others must be different objects, from each
other and from the rest; objects in the rest may be identical. `numbers` expects `[conditions, [[name, path], …]]`: all
paths lead to ints, or for a name like `f0` to floats, and with them as these names all conditions hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gearcache.guards.access import Access
from gearcache.guards.evidence.kind import Writer, of_relation
from gearcache.guards.evidence.names import a_type
from gearcache.guards.gears.expressions import FINITE, NAMESPACE, checked_expression, holds
from gearcache.interrupts import raise_interrupt


def _are_distinct(value: Any, expected: Any, others: Sequence[Any]) -> bool:
    """Whether `distinct` holds for a value and the objects at the other paths."""
    single = int(expected[0])
    rest = {id(other) for other in others[single:]}
    return len({id(value), *map(id, others)}) == 1 + single + len(rest)


def _distinct_source(writer: Writer, access: Access, expected: Any, compared: Any) -> str:
    value, others = writer.path(access), [writer.path(other) for other in _paths(expected)]
    if len(others) == 1:
        return f"{value} is not {others[0]}"
    single, length = int(expected[0]), writer.builtin(len)
    numbers = [f"{writer.builtin(id)}({text})" for text in (value, *others)]
    rest = numbers[1 + single :]
    count = f"{1 + single} + {length}({{{', '.join(rest)}}})" if len(rest) > 1 else str(len(numbers))
    return f"{length}({{{', '.join(numbers)}}}) == {count}"


def number_type(name: str) -> type:
    """Return the type of a number by its name: `n0` is an int, `f0` a float."""
    return float if name.startswith("f") else int


def _numbers_hold(value: Any, expected: Any, numbers: Sequence[Any]) -> bool:
    """Whether `numbers` holds for the objects at its paths."""
    values = {str(name): number for (name, _), number in zip(expected[1], numbers, strict=True)}
    if any(type(number) is not number_type(name) for name, number in values.items()):
        return False
    return all(holds(text, values) for text in expected[0])


def numbers_text(expected: Any) -> str:
    """Return the conditions of `numbers` as text for people, over paths."""
    texts = {str(name): Access.from_plain(path).text for name, path in expected[1]}
    finite = re.escape(FINITE).replace(r"\{\}", "(.*)")
    found = [(re.fullmatch(finite, text), text) for text in expected[0]]
    conditions = [f"({match[1]} is finite)" if match else text for match, text in found]
    return re.sub(r"\b[nf]\d+\b", lambda match: texts[match[0]], " and ".join(conditions))


def _numbers_words(path: str, expected: Any, wanted: str, present: str) -> str:
    """Return what does not hold; `present` is the type of the value at the first path."""
    first = "a float" if number_type(str(expected[1][0][0])) is float else "an int"
    is_other = present != first and len(expected[1]) == 1
    return f"`{path}` was {first}, is now {present}" if is_other else f"`{path}`: {wanted} does not hold"


def _numbers_source(writer: Writer, access: Access, expected: Any, compared: Any) -> str:
    builtin = writer.builtin
    local_names = {str(symbol): f"{writer.name('number')}{index}" for index, (symbol, _) in enumerate(expected[1])}
    local_names |= {function.__name__: builtin(function) for function in (min, max, float, abs, *NAMESPACE.values())}
    kinds = [
        f"{builtin(type)}({local_names[str(symbol)]} := {writer.path(Access.from_plain(path))})"
        f" is {builtin(number_type(str(symbol)))}"
        for symbol, path in expected[1]
    ]
    texts = [
        re.sub(r"\b[a-z]\w*\b", lambda match: local_names.get(match[0], match[0]), checked_expression(text))
        for text in expected[0]
    ]
    return " and ".join([*kinds, *(f"({text})" for text in texts)])


def _path(expected: Any) -> list[Access]:
    return [Access.from_plain(expected)]


def _paths(expected: Any) -> list[Access]:
    return [Access.from_plain(path) for path in expected[1]]


def _names(accesses: list[Access]) -> str:
    return ", ".join(f"`{access.text}`" for access in accesses)


def _places(expected: Any) -> list[Access]:
    return [Access.from_plain(path) for _, path in expected[1]]


def _is_subclass(value: Any, expected: Any, classes: Sequence[Any]) -> bool:
    """Whether `issubclass` of a class and the one at the other path gives what it gave."""
    try:
        return issubclass(value, classes[0]) is expected[1]
    except Exception as error:  # in the class's own code
        raise_interrupt(error)
        return False


def _subclass_source(writer: Writer, access: Access, expected: Any, compared: Any) -> str:
    value, cls = writer.path(access), writer.path(Access.from_plain(expected[0]))
    return f"{writer.builtin(issubclass)}({value}, {cls}) is {expected[1]!r}"


RELATIONS = (
    of_relation(
        "same",
        _path,
        lambda value, expected, others: value is others[0],
        found=lambda value, expected, walker: "another object",
        wanted=lambda expected: _names(_path(expected)),
        words=lambda path, expected, wanted, present: f"`{path}` was the same object as {wanted}, is now {present}",
        source=lambda writer, access, expected, compared: (
            f"{writer.path(access)} is {writer.path(Access.from_plain(expected))}"
        ),
    ),
    of_relation(
        "distinct",
        _paths,
        _are_distinct,
        found=lambda value, expected, walker: "the same object as one of them",
        wanted=lambda expected: f"another object than {_names(_paths(expected))}",
        words=lambda path, expected, wanted, present: f"`{path}` was {wanted}, is now {present}",
        source=_distinct_source,
    ),
    of_relation(
        "subclass",
        lambda expected: _path(expected[0]),
        _is_subclass,
        watch=lambda watching, value, expected: watching.add_type_test(
            watching.add_path(Access.from_plain(expected[0]))
        ),
        source=_subclass_source,
        words=lambda path, expected, wanted, present: (
            f"`{path}`: `issubclass` of `{Access.from_plain(expected[0]).text}` was {expected[1]}, is now {present}"
        ),
    ),
    of_relation(
        "numbers",
        _places,
        _numbers_hold,
        source=_numbers_source,
        found=lambda value, expected, walker: a_type(value),
        wanted=lambda expected: numbers_text(expected) or "an int",
        words=_numbers_words,
    ),
)
