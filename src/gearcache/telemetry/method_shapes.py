"""The shapes of a method's calls in one process: `.stats.to_dict()` contains them, `suggest-gears` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

Shape = tuple[int, ...]
Dims = tuple[tuple[str, int], ...]
#: Sizes of each gear by dim; None if a gear leaves a dim open.
Gears = tuple[tuple[int | None, ...], ...]
_DIM = re.compile(r"(.+)\.size\((\d{1,3})\)")


class MethodShapes(Struct, frozen=True):
    """The calls of a method in one process by the sizes of some dims, and its declared gears.

    `full_name` includes module and class, because two classes may have the same name.
    """

    method: str
    full_name: str = ""
    dims: Dims = ()
    gears: Gears = ()
    shapes: Mapping[Shape, int] = {}

    def to_plain(self) -> dict[str, Any]:
        """Return it as JSON data; JSON has no tuples for keys."""
        return {
            "method": self.method,
            "full_name": self.full_name,
            "dims": [f"{path}.size({dim})" for path, dim in self.dims],
            "declared": [list(gear) for gear in self.gears],
            "shapes": [{"shape": list(shape), "calls": calls} for shape, calls in sorted(self.shapes.items())],
        }


def read_shapes(document: Any) -> Iterator[MethodShapes]:
    """Yield the methods in JSON data, at any depth: `.stats.to_dict()`, a list of those, or a server's data that
    contains them. `ValueError` if a method has an unknown form."""
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


def _read(record: dict[str, Any]) -> MethodShapes:
    dims = tuple(_dim(text) for text in record["dims"])
    shapes: dict[Shape, int] = {}
    for item in record["shapes"]:
        shape = tuple(_number(size) for size in _of_length(item["shape"], len(dims)))
        shapes[shape] = shapes.get(shape, 0) + _number(item["calls"])
    gears = tuple(
        tuple(None if size is None else _number(size) for size in _of_length(gear, len(dims)))
        for gear in record["declared"]
    )
    return MethodShapes(_text(record["method"]), _text(record["full_name"]), dims, gears, shapes)


def _dim(text: Any) -> tuple[str, int]:
    match = _DIM.fullmatch(_text(text))
    if match is None:
        raise ValueError(f"`{text[:100]}` is no dim; one is written as `x.size(0)`")
    return match[1], int(match[2])


def _of_length(sizes: Any, length: int) -> list[Any]:
    if not isinstance(sizes, list) or len(sizes) != length:
        raise ValueError(f"it has a row that has not {length} sizes")
    return sizes


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("it has a number that is no int from 0 on")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("it has a name that cannot be printed")
    return value
