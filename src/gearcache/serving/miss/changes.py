"""Finds what varies between calls: dims, ints and floats of a call that differ from those that graphs were made for.

With `dynamic=None` all become dynamic in the next graph. Earlier values are read from the stored variants, so that
every host and every relaunch knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.guards.access import Access, Scope, Walker
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.checks import Check, first_failure
from gearcache.guards.evidence.constants import to_plain
from gearcache.guards.evidence.relations import number_type
from gearcache.guards.evidence.tree import evidence_checks
from gearcache.interrupts import raise_interrupt


class Changes(Struct):
    """The differences of a call from others."""

    dims: list[tuple[Access, int]] = field(default_factory=list)
    numbers: set[Access] = field(default_factory=set)
    #: Ints and floats for which no graph can serve several values.
    constants: set[Access] = field(default_factory=set)
    #: Why no graph could be made with sizes that vary, for a call that differs from this one in sizes only; or "".
    static_because: str = ""


def changes_from(scope: Scope, stored: Iterable[StoredVariant]) -> Changes:
    """Return how a call differs from the calls of stored variants, if only in sizes, ints and floats."""
    changes = Changes()
    for variant in stored:
        try:
            _add(changes, variant, scope)
        except Exception as error:  # the variant has an unknown form: a load reports it
            raise_interrupt(error)
    return changes


def _add(changes: Changes, variant: StoredVariant, scope: Scope) -> None:
    numbers = _differing_numbers(variant, scope)
    if numbers is None:
        return
    if variant.static_because and first_failure(variant.call_checks, Walker(scope)) is None:
        changes.static_because = variant.static_because
    changes.constants |= {Access.from_plain(path) for path in variant.constants}
    for index, item in enumerate(variant.inputs):
        tensor = item.access.find(scope)
        for gear in variant.gears:
            changes.dims += [(item.access, dim) for dim in _differing_dims(tensor, gear.sizes[index])]
    changes.numbers |= numbers


def _differing_numbers(variant: StoredVariant, scope: Scope) -> set[Access] | None:
    """Return the ints and floats in which a call differs from a variant, and the variant's numbers.

    None if it differs in anything else that is checked on each call.
    """
    walker, numbers = Walker(scope), set()
    for check in variant.call_checks:
        if check.kind == "numbers":
            numbers |= {place for place in check.others if not _is_size(place)}
        if check.failure(walker) is None:
            continue
        if not _is_other_number(check, scope):
            return None
        if check.kind == "constant":
            numbers.add(check.access)
    return numbers | {check.access for check in _evidence_of_numbers(variant) if _is_other_number(check, scope)}


def _is_size(access: Access) -> bool:
    return bool(access.steps) and access.steps[-1][0] == "size"


def _evidence_of_numbers(variant: StoredVariant) -> list[Check]:
    return [check for check in evidence_checks(variant.evidence) if check.number_type]


def _is_other_number(check: Check, scope: Scope) -> bool:
    """Whether a check is about numbers that exist, are of the same types, and have other values."""
    if check.kind == "numbers":
        named = [(number_type(str(name)), Access.from_plain(path)) for name, path in check.expected[1]]
        return all(type(place.find(scope)) is cls for cls, place in named)
    value = check.access.find(scope)
    return type(value) is check.number_type and to_plain(value) != check.expected


def _differing_dims(tensor: Any, sizes: Sequence[int | None]) -> list[int]:
    """Return the dims in which a tensor differs from sizes of the same rank; a dynamic dim (None) always differs."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != len(sizes):
        return []
    return [dim for dim, (size, call_size) in enumerate(zip(sizes, tensor.shape, strict=True)) if size != call_size]
