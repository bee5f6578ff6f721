"""Convert the variants of one entry to plain data that stores equal parts once, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gearcache.guards.access import Access
from gearcache.guards.dispatch.stored.form import check_gear
from gearcache.guards.dispatch.stored.stored_rows import SHARED_PARTS, shared
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput, StoredVariant
from gearcache.guards.evidence.checks import Check


def entry_to_plain(variants: Iterable[StoredVariant]) -> dict[str, Any]:
    """Return the variants of an entry as msgpack-able data that stores equal parts once."""
    return shared(variant.to_plain() for variant in variants)


def entry_from_plain(data: Mapping[str, Any]) -> list[StoredVariant]:
    """Inverse of `entry_to_plain`: equal parts become the same object.

    `ValueError`, `KeyError`, `TypeError` or `IndexError` for data of another form.
    """
    parts = data["parts"]
    part_cache: dict[tuple[str, int], Any] = {}

    def part_of(name: str, number: int) -> Any:
        if (name, number) not in part_cache:
            plain = parts[number]
            if name == "inputs":
                plain = [StoredInput.from_plain(item) for item in plain]
            elif name == "attributes":
                plain = {attribute: Access.from_plain(access) for attribute, access in plain}
            elif name == "call_checks":
                plain = [Check.from_plain(item) for item in plain]
            part_cache[name, number] = plain
        return part_cache[name, number]

    variants = [
        StoredVariant(
            **fields
            | {name: part_of(name, fields[name]) for name in SHARED_PARTS}
            | {"gears": [StoredGear.from_plain(gear) for gear in fields["gears"]]}
        )
        for fields in data["variants"]
    ]
    for variant in variants:
        if variant.graph_name not in variant.frame["co_names"] or not variant.gears:
            raise ValueError("a frame without a graph")
        for gear in variant.gears:
            check_gear(gear, len(variant.inputs), variant.attributes, variant.outputs)
    return variants
