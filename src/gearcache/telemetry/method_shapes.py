"""Which shapes a process has met of a method, as `.stats.to_dict()` says it and `gearcache suggest-gears` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

Shape = tuple[int, ...]
Dims = tuple[tuple[str, int], ...]
#: Sizes of each gear by dim; None where a gear leaves a dim open.
Gears = tuple[tuple[int | None, ...], ...]
_DIM = re.compile(r"(.+)\.size\((\d{1,3})\)")


class MethodShapes(Struct, frozen=True):
    """What a process has met of a method: calls by the sizes of some dims, and the gears that it declares.

    `full_name` has module and class as well, as two classes may have one name.
    """

    method: str
    full_name: str = ""
    dims: Dims = ()
    gears: Gears = ()
    shapes: Mapping[Shape, int] = {}

    def to_plain(self) -> dict[str, Any]:
        """Return it as data for JSON, which has no tuples for keys."""
        return {
            "method": self.method,
            "full_name": self.full_name,
            "dims": [f"{path}.size({dim})" for path, dim in self.dims],
            "declared": [list(gear) for gear in self.gears],
            "shapes": [{"shape": list(shape), "calls": calls} for shape, calls in sorted(self.shapes.items())],
        }


def read_shapes(document: Any) -> Iterator[MethodShapes]:
    """Yield what JSON data says of methods, at any depth: `.stats.to_dict()`, a list of those, what a server makes of
    them. `ValueError` where a method is described in another form."""
    if isinstance(document, list):
        for item in document:
            yield from read_shapes(item)
    elif isinstance(document, dict) and {"dims", "shapes"} <= document.keys():
        try:
            yield _read(document)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a method in it is described in another form: {type(error).__name__}: {error}") from error
    elif isinstance(document, dict):
        for item in document.values():
            yield from read_shapes(item)


def _read(row: dict[str, Any]) -> MethodShapes:
    dims = tuple(_dim(text) for text in row["dims"])
    shapes: dict[Shape, int] = {}
    for each in row["shapes"]:
        shape = tuple(_number(size) for size in _of_length(each["shape"], len(dims)))
        shapes[shape] = shapes.get(shape, 0) + _number(each["calls"])
    gears = tuple(
        tuple(None if size is None else _number(size) for size in _of_length(gear, len(dims)))
        for gear in row["declared"]
    )
    return MethodShapes(_text(row["method"]), _text(row["full_name"]), dims, gears, shapes)


def _dim(text: Any) -> tuple[str, int]:
    found = _DIM.fullmatch(_text(text))
    if found is None:
        raise ValueError(f"`{text[:100]}` is no dim; one is written as `x.size(0)`")
    return found[1], int(found[2])


def _of_length(row: Any, length: int) -> list[Any]:
    if not isinstance(row, list) or len(row) != length:
        raise ValueError(f"it has a row that has not {length} sizes")
    return row


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("it has a number that is no int from 0 on")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("it has a name that cannot be printed")
    return value
