"""Finds the stored gears that a host would compile although it has an entry of the same key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gearcache.cache.manifest import Manifest
from gearcache.guards.access import Access
from gearcache.readable.entry import understood, variants_of
from gearcache.readable.variant import path_text
from gearcache.reporting.safe_texts import number

#: The fields that a lookup and a call compare, in addition to the sources.
_COMPARED = ("inputs", "attributes", "call_checks", "evidence")
#: The fields that a call compares in addition to sizes and strides, for a graph that serves many sizes.
_CONDITIONS = ("symbols", "conditions", "measures", "contiguous")


class Anew(NamedTuple):
    """A gear that would be compiled: its text, the layout that no stored gear takes, and its compile time."""

    gear: str
    layout: str
    seconds: float


def gears_to_compile(wanted: Manifest, stored: Manifest) -> list[Anew]:
    """Return the gears of `wanted` that `stored` does not serve.

    A gear is served by a gear of a variant with equal checks that takes tensors of its sizes and strides, including
    dims that no gear names. If the checks of the variants differ, only the program could decide, so a compile is
    assumed. `CacheError` for payloads of an unknown form.
    """
    with understood(stored):
        served = [(_compared_checks(variant), variant["gears"]) for variant in variants_of(stored)]
    with understood(wanted):
        missing = []
        for variant in variants_of(wanted):
            checks = _compared_checks(variant)
            candidates = [gear for other, gears in served if other == checks for gear in gears]
            for gear in variant["gears"]:
                if not any(_takes(other, gear) for other in candidates):
                    namesakes = [other for other in candidates if other["text"] == gear["text"]]
                    missing.append(Anew(gear["text"], _layout(variant, gear, namesakes), number(gear.get("seconds"))))
    return missing


def _compared_checks(variant: dict[str, Any]) -> dict[str, Any]:
    sources = variant["sources"]
    return {
        **{name: variant[name] for name in _COMPARED},
        "sources": [sources["files"], sources.get("operators", [])],
    }


def _takes(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a stored gear takes everything that another one takes, given variants with equal checks."""
    return (
        stored["text"] == wanted["text"]
        and all(stored.get(name, []) == wanted.get(name, []) for name in _CONDITIONS)
        and all(_admits(stored.get(name, []), wanted.get(name, [])) for name in ("sizes", "strides"))
    )


def _admits(stored: list[list[int | None]], wanted: list[list[int | None]]) -> bool:
    if list(map(len, stored)) != list(map(len, wanted)):
        return False
    rows = zip(stored, wanted, strict=True)
    return all(
        stored_size is None or stored_size == wanted_size
        for stored_sizes, wanted_sizes in rows
        for stored_size, wanted_size in zip(stored_sizes, wanted_sizes, strict=True)
    )


def _layout(variant: Mapping[str, Any], gear: Mapping[str, Any], namesakes: Iterable[Mapping[str, Any]]) -> str:
    """Return the first input for which the stored gears of this text take other sizes or strides; empty if none."""
    for other in namesakes:
        for name, stored_layout, wanted_layout in _rows(variant, gear, other):
            return f"{name} is {wanted_layout}, stored is {stored_layout}"
    return ""


def _rows(
    variant: Mapping[str, Any], gear: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    names = [path_text(Access.from_plain(access)) for access, *_ in variant["inputs"]]
    for what in ("sizes", "strides"):
        rows = zip(names, other.get(what, []), gear.get(what, []), strict=False)
        for name, stored_row, wanted_row in rows:
            if not _admits([stored_row], [wanted_row]):
                yield name, f"of {what} {_numbers(stored_row)}", f"of {what} {_numbers(wanted_row)}"


def _numbers(sizes: list[int | None]) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in sizes)}]"
