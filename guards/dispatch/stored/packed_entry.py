"""Convert the variants of one entry to plain data that stores equal parts once, and back, with their form validated:
torch's C checks and generated code trust their input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from gearcache.guards.access import Access
from gearcache.guards.dispatch.stored.stored_rows import SHARED_PARTS, shared
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput, StoredVariant
from gearcache.guards.evidence.checks import Check

_SIZES = {int, type(None)}
_BASES = ("output", "input", "attribute")


def check_gear(gear: StoredGear, inputs: int, attributes: Iterable[str], outputs: int) -> None:
    """Raise `ValueError` or `TypeError` for a gear that does not have the form that `building` stores."""
    _expect(type(gear.text) is str and type(gear.header) is dict, "text or header")
    _expect(type(gear.blobs) is dict and set(map(type, gear.blobs.values())) <= {str}, "blobs")
    for rows in (gear.sizes, gear.strides):
        _expect(type(rows) is list and len(rows) == inputs, "sizes or strides")
        for row in rows:
            _expect(type(row) is list and set(map(type, row)) <= _SIZES, "sizes or strides")
    _expect(list(map(len, gear.sizes)) == list(map(len, gear.strides)), "sizes or strides")
    for numbers in (gear.written, gear.contiguous):
        _expect(type(numbers) is list and all(_is_index(number, inputs) for number in numbers), "numbers of inputs")
    ranks = [len(row) for row in gear.sizes]
    dims = [tuple(item) for item in gear.assumed]
    for name, index, kind, dim in (*gear.symbols, *gear.measures):
        _expect(type(name) is str and kind in ("size", "stride"), "symbols or measures")
        dims.append((index, dim))
    for index, dim in dims:
        _expect(_is_index(index, inputs) and _is_index(dim, ranks[index]), "dims of inputs")
    _expect(set(map(type, gear.conditions)) <= {str}, "conditions")
    _expect(type(gear.in_inference_mode) is bool, "modes")
    for output, is_on in gear.regions:
        _expect(_is_index(output, None) and type(is_on) is bool, "modes")
    for name, members in gear.groups:
        _expect(type(name) is str and type(members) is list and set(map(type, members)) <= {int}, "process groups")
    attribute_names = set(attributes)
    _expect(type(gear.results) is list and len(gear.results) == outputs, "results")
    for index, form in enumerate(gear.results):
        _check_result(form, index, inputs, attribute_names)


def _check_result(form: list[Any], index: int, inputs: int, attributes: set[str]) -> None:
    kind, owner, *view = form
    _expect(type(kind) is str, "results")
    if kind == "constant":
        _expect(not view, "results")
        return
    if kind == "result":
        _expect(not view and _is_index(owner, index), "results")
        return
    base, is_view = kind.removesuffix("_view"), kind.endswith("_view")
    if is_view and len(view) > 3 and view[-1] is True:  # detached
        view.pop()
    if is_view and len(view) == 4:
        _expect(isinstance(getattr(torch, str(view.pop()), None), torch.dtype), "results")
    _expect(base in _BASES and len(view) == (3 if is_view else 0), "results")
    is_known = owner in attributes if base == "attribute" else _is_index(owner, inputs if base == "input" else None)
    _expect(is_known, "results")
    if is_view:
        sizes, strides, offset = view
        _expect(type(sizes) is list and type(strides) is list and len(sizes) == len(strides), "results")
        for number in (*sizes, *strides, offset):
            _expect(type(number) is int or (type(number) is dict and type(number["expression"]) is str), "results")


def _is_index(number: Any, count: int | None) -> bool:
    return type(number) is int and number >= 0 and (count is None or number < count)


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} of another form")


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
