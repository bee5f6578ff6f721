"""Which gears no variant has for a call, and how the graphs of variants fit it. A hit does not import this."""

from __future__ import annotations

from collections.abc import Iterable

from gearcache.guards.access import Access
from gearcache.guards.dispatch.inputs import Problem
from gearcache.guards.dispatch.other_gears import CallValues, GearFit, gear_fits, size_relations
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.gears.spec import GearSpec, gear_text
from gearcache.serving.call.call import Call
from gearcache.serving.find.fit import numbers_of, problem_of, takes, tensors_of


def missing_gears(variants: Iterable[StoredVariant], call: Call, spec: GearSpec) -> list[tuple[int, ...]]:
    """Return the possible gears of a spec that no variant has for such a call."""
    gears: set[str] = set()
    for variant in variants:
        if takes(variant, call):
            gears |= excluded_gears(variant, call, spec)
            gears.update(fit.gear.text for fit in fits_of(variant, call, spec) if fit.serves(spec))
    return [gear for gear in spec.gears if gear_text(spec, gear) not in gears]


def fits_of(variant: StoredVariant, call: Call, spec: GearSpec) -> list[GearFit]:
    """Return how each graph of a variant fits a call; none if an argument check fails."""
    tensors = tensors_of(variant, call)
    if tensors is None:
        return []
    values = CallValues(tensors, numbers_of(variant, call), size_relations(variant, call.scope))
    return list(gear_fits(variant, spec, call.sizes(spec), values))


def excluded_gears(variant: StoredVariant, call: Call, spec: GearSpec) -> set[str]:
    """Return the requested gears that cannot exist, or at which the method raises for the ints of a call.

    The gear of the call itself is not excluded: a trace has excluded it for other ints.
    """
    gears = set(variant.impossible)
    for text, ints in variant.raising:
        found = [(Access.from_plain(path).find(call.scope), value) for path, value in ints]
        if all(isinstance(present, int) and present == value for present, value in found):
            gears.add(text)
    return gears - {gear_text(spec, call.sizes(spec))}


def problems_of(variant: StoredVariant, call: Call) -> list[Problem | None]:
    """Return what keeps a call from each graph of a variant, None if nothing; empty if an argument check fails."""
    tensors = tensors_of(variant, call)
    if tensors is None:
        return []
    numbers = numbers_of(variant, call)
    return [problem_of(variant, gear, tensors, numbers) for gear in variant.gears]
