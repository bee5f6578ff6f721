"""Replace process groups in a stored variant: in its evidence, its checks and its gears, each as `[name, ranks]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gearcache.guards.access import Scope
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.kinds import KINDS
from gearcache.guards.evidence.tree import evidence_checks
from gearcache.interrupts import raise_interrupt

#: The kind of check that compares a group.
KIND = "process_group"


def with_groups(variant: StoredVariant, change: Callable[[list[Any]], list[Any]]) -> StoredVariant:
    """Return a variant with `change` applied to each of its groups."""
    nodes, roots = variant.evidence
    new_nodes = [
        [[[kind, change(expected) if kind == KIND else expected] for kind, expected in checks], children]
        for checks, children in nodes
    ]
    checks = [
        replace(check, expected=change(check.expected)) if check.kind == KIND else check
        for check in variant.call_checks
    ]
    gears = [replace(gear, groups=list(map(change, gear.groups))) for gear in variant.gears]
    return replace(variant, evidence=[new_nodes, roots], call_checks=checks, gears=gears)


def with_groups_here(variant: StoredVariant, scope: Scope) -> StoredVariant | None:
    """Return a variant of another rank with this rank's groups in the same places; None where they are ambiguous.

    A group keeps its name where the other rank knew only the name.
    """
    groups_here: dict[str, list[Any]] = {}
    for check in (*evidence_checks(variant.evidence), *variant.call_checks):
        if check.kind != KIND:
            continue
        try:
            own_group = KINDS[KIND].observe(check.access.resolve(scope), None)
        except Exception as error:
            raise_interrupt(error)
            return None
        if groups_here.setdefault(repr(check.expected), own_group) != own_group:
            return None
    return with_groups(variant, lambda group: groups_here.get(repr(group), group))
