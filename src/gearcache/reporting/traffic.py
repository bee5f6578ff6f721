"""Summarises the calls of a method: calls per gear, and shapes outside the gears."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_PART = re.compile(r"(?P<dim>[^=]+)=(?P<size>\d{1,15})(?:, |$)")
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
    calls, padded, eager, refused, unserved = (Counter[str]() for _ in range(5))
    for record in records:
        calls.update(record["gears"])
        padded.update(record["padded"])
        eager.update(record["eager_reasons"])
        refused.update(record["refused_errors"])
        for shape in record["shapes"]:
            unserved[_text(record["dims"], shape["sizes"])] += shape["calls"]
    gears = list(dict.fromkeys([*(_declared(records) or stored), *calls]))
    unserved_by_gear, outside = Counter[str](), Counter(padded)
    for text, number in unserved.items():
        gear = _gear_of(text, gears)
        if gear is None:
            outside[text] += number
        else:
            unserved_by_gear[gear] += number
    return {
        "processes": len({record["start"] for record in records}),
        "calls": sum(calls.values()) + sum(padded.values()) + sum(eager.values()),
        "padded_calls": sum(padded.values()),
        "refused_calls": sum(refused.values()),
        "eager_reasons": dict(sorted(eager.items())),
        "refused_errors": dict(sorted(refused.items())),
        "gears": [{"gear": gear, "calls": calls[gear], "unserved": unserved_by_gear[gear]} for gear in gears],
        "outside": [
            {"text": text, "calls": outside[text], "padded": padded[text]}
            for text in sorted(outside, key=lambda text: (list((gear_sizes(text) or {}).values()), text))
            if outside[text]
        ],
    }


def _declared(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the gears of the latest process that declares any."""
    latest = max((record["began"] for record in records if record["declared"]), default=None)
    declarations = [record["declared"] for record in records if record["began"] == latest]
    return list(dict.fromkeys(gear for gears in declarations for gear in gears))


def _text(dims: Sequence[str], sizes: Sequence[int]) -> str:
    """Return the sizes of a shape as the text of a gear has them."""
    if len(sizes) != len(dims):  # the sum of many rare shapes
        return _UNKNOWN
    return ", ".join(f"{dim}={size}" for dim, size in zip(dims, sizes, strict=True)) or _UNKNOWN


def _gear_of(text: str, gears: Sequence[str]) -> str | None:
    """Return the gear of a shape's sizes, if any: it was not compiled yet, or its graph could not serve the call."""
    sizes = gear_sizes(text) or {}
    return next((gear for gear in gears if (of_gear := gear_sizes(gear)) and of_gear.items() <= sizes.items()), None)
