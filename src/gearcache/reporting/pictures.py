"""The pictures of a report as plain data: calls per gear as a heat map, and a start as a timeline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gearcache.reporting.safe_texts import duration_text

#: A wider heat map is split into several, one below the other, to fit paper and phones.
COLUMNS = 10
#: The most bars of a timeline, the longest ones: others would be narrower than a line.
BARS = 1000
WIDTH, _ROW, _LETTER = 1000, 18, 6.8
_LEVELS = 5

#: Kinds of spans in the order of a start, and their labels.
KINDS = {
    "prepare": "preparing a method",
    "key": "key",
    "manifest": "manifest",
    "evidence": "evidence",
    "blob": "blob",
    "gear": "gear",
    "trace": "trace",
    "compile": "compile",
    "publish": "storing",
    "fetch": "fetching from a tier",
    "upload": "sending to a tier",
    "lease": "waiting for another host",
    "run": "running the graph",
    "answer": "first answer of a graph",
    "itself": "first answer of the method itself",
}


class Cell(Struct):
    """Calls of a gear, or of a shape outside all gears; `path` is the place of the number in the document."""

    text: str
    sizes: tuple[int | None, ...]
    calls: int
    note: str
    is_outside: bool
    path: list[str | int]
    level: int = 0


class HeatMap(Struct):
    """A list of cells, or grids over two dims: (sizes across, rows of (size down, cells))."""

    cells: list[Cell]
    down: str = ""
    across: str = ""
    grids: list[tuple[list[int], list[tuple[int, list[Cell | None]]]]] = []


def heat_map(index: int, traffic: Mapping[str, Any]) -> HeatMap:
    """Return the calls of a method; `index` is its place in the document."""
    gear_dims = [dim for gear in traffic["gears"] for dim in gear["sizes"] or ()]
    dims = list(dict.fromkeys(gear_dims or traffic["dims"]))
    cells = _cells(["methods", index, "traffic"], traffic, dims)
    most = max((cell.calls for cell in cells), default=1) or 1
    for cell in cells:
        cell.level = math.ceil(_LEVELS * math.sqrt(cell.calls / most))
    # A dim with a single size is left out; two dims that vary make a grid.
    varying = [place for place in range(len(dims)) if len({cell.sizes[place] for cell in cells}) > 1]
    places = {tuple(cell.sizes[place] for place in varying): cell for cell in cells}
    is_grid = len(varying) == 2 and len(places) == len(cells) and set(traffic["dims"]) <= set(dims)
    if not is_grid or any(None in place for place in places):
        return HeatMap(sorted(cells, key=lambda cell: [cell.sizes[place] or 0 for place in varying]))
    down, across = (sorted({cell.sizes[place] or 0 for cell in cells}) for place in varying)
    grids = [
        (columns, [(size, [places.get((size, other)) for other in columns]) for size in down])
        for columns in (across[at : at + COLUMNS] for at in range(0, len(across), COLUMNS))
    ]
    return HeatMap(cells, dims[varying[0]], dims[varying[1]], grids)


def _cells(base: list[str | int], traffic: Mapping[str, Any], dims: Sequence[str]) -> list[Cell]:
    cells = []
    for number, gear in enumerate(traffic["gears"]):
        note = f" and {gear['unserved']} not by its graph" if gear["unserved"] else ""
        sizes = tuple((gear["sizes"] or {}).get(dim) for dim in dims)
        cells.append(Cell(gear["gear"], sizes, gear["calls"], note, False, [*base, "gears", number, "calls"]))
    for number, shape in enumerate(traffic["outside"]):
        note = f" outside, {shape['padded']} of them padded" if shape["padded"] else " outside"
        note = " padded" if shape["padded"] == shape["calls"] else note
        own_sizes = dict(zip(traffic["dims"], shape["sizes"], strict=False))
        sizes = tuple(own_sizes.get(dim) for dim in dims)
        cells.append(Cell(shape["text"], sizes, shape["calls"], note, True, [*base, "outside", number, "calls"]))
    return cells


class Bar(Struct):
    """A span as a bar of a timeline, in units of the picture."""

    x: float
    y: int
    width: float
    kind: str
    title: str
    label: str


class Timeline(Struct):
    """Bars and ticks (place, text) of a start."""

    text: str
    height: int
    bars: list[Bar]
    ticks: list[tuple[float, str]]


def kind_of(category: str) -> str:
    """Return the name of a span's kind in the styles."""
    return category if category in KINDS else "other"


def timeline(start: Mapping[str, Any]) -> Timeline:
    """Return the spans of a start, from its first one on."""
    spans = sorted(start["spans"], key=lambda each: -each["seconds"])[:BARS]
    spans.sort(key=lambda each: (each["begin"], -each["seconds"]))
    begin = min((each["begin"] for each in spans), default=0.0)
    length = max((each["begin"] + each["seconds"] for each in spans), default=0.0) - begin or 1e-9
    rows, lanes = _rows(spans)

    def scale(seconds: float) -> float:
        return round(seconds / length * (WIDTH - 10), 2)

    bars = []
    for span, row in zip(spans, rows, strict=True):
        width = max(1.0, scale(span["seconds"]))
        letters = int((width - 8) / _LETTER)
        name = span["name"] if len(span["name"]) <= letters else f"{span['name'][: max(0, letters - 1)]}…"
        title = f"{span['name']}: {duration_text(span['seconds'])}"
        label = name if letters >= 3 else ""
        bars.append(Bar(scale(span["begin"] - begin), row * _ROW + 2, width, kind_of(span["category"]), title, label))
    step = _round_step(length)
    ticks = [(scale(number * step), _tick_text(number * step, step)) for number in range(int(length / step) + 1)]
    text = f"{len(spans)} {'span' if len(spans) == 1 else 'spans'} in {duration_text(length)}"
    return Timeline(text, lanes * _ROW + 26, bars, ticks)


def _rows(spans: Sequence[Mapping[str, Any]]) -> tuple[list[int], int]:
    """Return a row for each span, inner spans below outer ones, and the number of rows; each thread has its own."""
    rows = [0] * len(spans)
    lanes = 0
    for thread in dict.fromkeys(span["thread"] for span in spans):
        base, ends = lanes, list[float]()
        for index, span in enumerate(spans):
            if span["thread"] == thread:
                while ends and ends[-1] <= span["begin"] + 1e-9:
                    ends.pop()
                rows[index] = base + len(ends)
                ends.append(span["begin"] + span["seconds"])
                lanes = max(lanes, rows[index] + 1)
    return rows, lanes


def _round_step(length: float) -> float:
    """Return 1, 2 or 5 times a power of ten, such that four to nine of them fit into a length."""
    power: float = 10.0 ** math.floor(math.log10(length / 4))
    return next((digit * power for digit in (5, 2, 1) if digit * power <= length / 4), power)


def _tick_text(seconds: float, step: float) -> str:
    unit, factor = ("s", 1) if step >= 0.1 else ("ms", 1e3) if step >= 1e-4 else ("µs", 1e6)
    return f"{round(seconds * factor, 3):g} {unit}"
