"""Summarises the calls of a method: calls per gear, shapes outside the gears, and gears that would fit better."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gearcache.errors import GearSpecError
from gearcache.guards.gears.sizes import MAX_GEARS
from gearcache.reporting.safe_texts import shown
from gearcache.telemetry.suggest import suggest

_PART = re.compile(r"(?P<dim>[^=]+)=(?P<size>\d{1,15})(?:, |$)")
_DIM = re.compile(r"(?P<path>.+)\.size\((?P<dim>\d{1,3})\)")
#: The most shapes for a suggestion, which tries many lists; with more it would take seconds.
_MOST_SHAPES = 400
_Shapes = Mapping[tuple[int, ...], int]
#: Sizes of some dims; None if they are unknown. An entirely unknown shape has a text instead.
_KnownShape = tuple[tuple[int | None, ...], str]
_UNKNOWN = "other shapes"


def gear_sizes(text: str) -> dict[str, int] | None:
    """Return dim -> size for the text of a gear, `ids.size(0)=4, ids.size(1)=16`; None for another text."""
    sizes, at = {}, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return None
        sizes[part["dim"]] = int(part["size"])
        at = part.end()
    return sizes or None


def traffic_of(records: Sequence[Mapping[str, Any]], stored: Sequence[str]) -> dict[str, Any] | None:
    """Return the calls of a method in some recorded processes; None if there are none.

    Each record has its `start` and when that `began`. The current gears are those that the latest record declares, or
    else `stored`. Every call has a row, even one with unknown sizes or with dims that the gears do not have.
    """
    if not records:
        return None
    calls, padded, eager, refused = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for record in records:
        calls.update(record["gears"])
        padded.update(record["padded"])
        eager.update(record["eager_reasons"])
        refused.update(record["refused_errors"])
    current_gears = _declared(records) or stored
    gears = list(dict.fromkeys([*current_gears, *calls]))
    current_sizes = [sizes for gear in current_gears or gears if (sizes := gear_sizes(gear)) is not None]
    gear_dims = [sizes for gear in gears if (sizes := gear_sizes(gear)) is not None]
    padded_sizes = {text: gear_sizes(text) for text in padded}
    named_dims = [dim for sizes in (*gear_dims, *filter(None, padded_sizes.values())) for dim in sizes]
    dims = list(dict.fromkeys([*named_dims, *(dim for process_record in records for dim in process_record["dims"])]))
    outside = _outside(dims, padded, records)
    gear_by_shape = {shape: _gear_of(dims, shape, gears) for shape in outside}
    unserved = Counter[str]()
    for shape_key, gear in gear_by_shape.items():
        if gear is not None:
            unserved[gear] += sum(outside[shape_key])
    shapes = Counter[tuple[int | None, ...]]()
    for (shape, _), served in outside.items():
        shapes[shape] += sum(served)
    for text, number in calls.items():
        if number:
            shapes[_shape(dims, gear_sizes(text) or {})] += number
    return {
        "processes": len({record["start"] for record in records}),
        "calls": sum(calls.values()) + sum(padded.values()) + sum(eager.values()),
        "padded_calls": sum(padded.values()),
        "refused_calls": sum(refused.values()),
        "eager_reasons": dict(sorted(eager.items())),
        "refused_errors": dict(sorted(refused.items())),
        "dims": dims,
        "gears": [
            {"gear": gear, "sizes": gear_sizes(gear), "calls": calls[gear], "unserved": unserved[gear]}
            for gear in gears
        ],
        "outside": [
            {"text": _text(dims, shape, text), "sizes": list(shape), "calls": sum(served), "padded": served[0]}
            for (shape, text), served in sorted(outside.items(), key=lambda item: _order(item[0]))
            if sum(served) and gear_by_shape[shape, text] is None
        ],
        **_suggested(dims, shapes, current_sizes, pads=bool(padded)),
    }


def _declared(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the gears of the latest process that declares any."""
    latest = max((record["began"] for record in records if record["declared"]), default=None)
    declarations = [record["declared"] for record in records if record["began"] == latest]
    return list(dict.fromkeys(gear for gears in declarations for gear in gears))


def _outside(
    dims: Sequence[str], padded: Mapping[str, int], records: Sequence[Mapping[str, Any]]
) -> dict[_KnownShape, tuple[int, int]]:
    """Return shape -> calls that were padded to a gear, and calls that no graph has served."""
    calls_by_shape: dict[_KnownShape, tuple[int, int]] = {}
    rows: list[tuple[Mapping[str, int | None], str, int, int]] = []
    for text, number in padded.items():
        sizes = gear_sizes(text)
        rows.append((sizes or {}, "" if sizes else text, number, 0))
    for record in records:
        for row in record["shapes"]:
            # If the numbers of sizes and dims differ, the sizes cannot be assigned to dims.
            is_whole = len(row["sizes"]) == len(record["dims"]) > 0
            own_sizes = dict(zip(record["dims"], row["sizes"], strict=True)) if is_whole else {}
            rows.append(
                (own_sizes, "" if any(size is not None for size in own_sizes.values()) else _UNKNOWN, 0, row["calls"])
            )
    for known_sizes, text, padded_calls, unserved in rows:
        shape = _shape(dims, known_sizes), text
        sums = calls_by_shape.get(shape, (0, 0))
        calls_by_shape[shape] = sums[0] + padded_calls, sums[1] + unserved
    return calls_by_shape


def _shape(dims: Sequence[str], sizes: Mapping[str, int | None]) -> tuple[int | None, ...]:
    return tuple(sizes.get(dim) for dim in dims)


def _text(dims: Sequence[str], shape: Sequence[int | None], text: str) -> str:
    return text or ", ".join(f"{dim}={size}" for dim, size in zip(dims, shape, strict=True) if size is not None)


def _order(shape: _KnownShape) -> tuple[list[int], str]:
    return [-1 if size is None else size for size in shape[0]], shape[1]


def _gear_of(dims: Sequence[str], shape: _KnownShape, gears: Sequence[str]) -> str | None:
    """Return the gear of a shape's sizes, if any: it was not compiled yet, or its graph could not serve the call."""
    sizes = {dim: size for dim, size in zip(dims, shape[0], strict=True) if size is not None}
    for gear in gears:
        dim_sizes = gear_sizes(gear)
        if dim_sizes is not None and all(sizes.get(dim) == size for dim, size in dim_sizes.items()):
            return gear
    return None


def _suggested(
    dims: Sequence[str],
    counted: Mapping[tuple[int | None, ...], int],
    current_sizes: Sequence[Mapping[str, int]],
    *,
    pads: bool,
) -> dict[str, Any]:
    """Return the gears that fit the shapes best, as many as there are now, and the padding with both.

    For a method that does not pad, the present padding is None, unless all its shapes are gears.
    """
    no_suggestion = {"suggested": None, "padding_now": None}
    geared = [index for index, dim in enumerate(dims) if any(dim in gear for gear in current_sizes)]
    dims = [dims[index] for index in geared]
    shapes = Counter[tuple[int, ...]]()
    for shape, calls in counted.items():
        sizes = tuple(size for index in geared if (size := shape[index]) is not None)
        if len(sizes) < len(dims):  # the padding of unknown shapes is not known
            return no_suggestion
        shapes[sizes] += calls
    places = [_DIM.fullmatch(dim) for dim in dims]
    if not current_sizes or not shapes or len(shapes) > _MOST_SHAPES or None in places:
        return no_suggestion
    pairs = [(place["path"], int(place["dim"])) for place in places if place]
    try:
        suggestion = suggest(pairs, shapes, min(len(current_sizes), MAX_GEARS))
    except (GearSpecError, AssertionError, ZeroDivisionError):  # the file contains impossible sizes
        return no_suggestion
    return {
        "suggested": {
            "sizes": [{"dim": shown(dim), "sizes": sizes} for dim, sizes in suggestion.sizes.items()],
            "padding": round(suggestion.padded, 4),
        },
        "padding_now": now if (now := _padding_now(dims, shapes, current_sizes)) == 0 or pads else None,
    }


def _padding_now(dims: Sequence[str], shapes: _Shapes, current_sizes: Sequence[Mapping[str, int]]) -> float | None:
    """Return the share of the work that is padding, if each shape is filled up to the smallest gear that holds it.

    None if a shape fits into no gear: such calls are refused or run without a graph, with no padding.
    """
    varying = [index for index in range(len(dims)) if any(dims[index] in gear for gear in current_sizes)]
    least_work = work = 0
    for shape, calls in shapes.items():
        sizes = {dims[index]: shape[index] for index in varying}
        gear_works = [
            math.prod(gear.get(dim, size) for dim, size in sizes.items())
            for gear in current_sizes
            if all(gear.get(dim, size) >= size for dim, size in sizes.items())
        ]
        if not gear_works:
            return None
        least_work += calls * math.prod(sizes.values())
        work += calls * min(gear_works)
    return round(1 - least_work / work, 4) if work else None
