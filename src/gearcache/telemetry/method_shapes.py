"""The shapes of a method's calls in one process: `.stats.to_dict()` contains them, `suggest-gears` reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

Shape = tuple[int, ...]
Dims = tuple[tuple[str, int], ...]
#: Sizes of each gear by dim; None if a gear leaves a dim open.
Gears = tuple[tuple[int | None, ...], ...]
_Number = Annotated[int, Meta(ge=0)]


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


class _Row(Struct):
    shape: tuple[_Number, ...]
    calls: _Number


class _Record(Struct):
    """A method in the data of a process; other fields are not read."""

    method: str
    full_name: str
    dims: list[Annotated[str, Meta(pattern=r"^.+\.size\(\d{1,3}\)$")]]
    declared: tuple[tuple[_Number | None, ...], ...]
    shapes: list[_Row]


def read_shapes(document: Any) -> Iterator[MethodShapes]:
    """Yield the methods in JSON data, at any depth: `.stats.to_dict()`, a list of those, or a server's data that
    contains them. `ValueError` if a method has an unknown form."""
    if isinstance(document, list):
        for item in document:
            yield from read_shapes(item)
    elif isinstance(document, dict) and {"dims", "shapes"} <= document.keys():
        try:
            yield _read(convert(document, _Record))
        except ValidationError as error:
            raise ValueError(f"a method in it is described in another form: {error}") from error
    elif isinstance(document, dict):
        for item in document.values():
            yield from read_shapes(item)


def _read(record: _Record) -> MethodShapes:
    dims = tuple((path, int(dim)) for path, dim in (text[:-1].rsplit(".size(", 1) for text in record.dims))
    if any(len(row) != len(dims) for row in (*record.declared, *(row.shape for row in record.shapes))):
        raise ValueError(f"it has a row that has not {len(dims)} sizes")
    shapes = Counter[Shape]()
    for row in record.shapes:
        shapes[row.shape] += row.calls
    return MethodShapes(record.method, record.full_name, dims, record.declared, shapes)
