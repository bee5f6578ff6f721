"""Which of several reasons to report, where each of the stored variants has its own: those of the nearest variants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gearcache.guards.access import Scope, Walker
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.kinds import KINDS
from gearcache.guards.evidence.reason import MISFITS, Reason, merged
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.evidence.tree import evidence_checks
from gearcache.interrupts import raise_interrupt
from gearcache.serving.call.call import Call
from gearcache.serving.find.fit import misfit


def nearest_reasons(misses: Sequence[tuple[StoredVariant, Reason]], scope: Scope) -> list[Reason]:
    """Return the faults, and the reasons of those variants that differ least from the call and its module.

    With `a=1` and `a=2` stored, a call with `a=2` and another `b` misses because of `b` alone.
    """
    reasons = merged(reason for _, reason in misses)
    if len(reasons) < 2:
        return reasons
    # Calls that run without a graph come here each time: their arguments are all that keeps them from the variants.
    is_of_call = all(reason.kind == "arguments" for reason in reasons)
    counts = [
        _difference_count(variant, scope, is_of_call=is_of_call) if reason.kind in MISFITS else 0
        for variant, reason in misses
    ]
    least = min((count for count in counts if count), default=0)
    return merged(reason for count, (_, reason) in zip(counts, misses, strict=True) if count in (0, least))


def nearest_misfits(variants: Iterable[StoredVariant], call: Call) -> list[Reason]:
    """Return the reasons of those of some variants whose checks of the arguments differ least from a call."""
    misses = [(variant, reason) for variant in variants if (reason := misfit(variant, call)) is not None]
    return nearest_reasons(misses, call.scope)


def _difference_count(variant: StoredVariant, scope: Scope, *, is_of_call: bool) -> int:
    """Return at how many places a variant differs from a call, and its module unless `is_of_call`; at least 1."""
    walker = Walker(scope)
    checks = [*variant.call_checks, *(() if is_of_call else evidence_checks(variant.evidence))]
    checks.sort(key=lambda check: KINDS[check.kind].is_last)
    try:
        places = {check.access.text for check in checks if check.failure(walker) is not None}
    except Exception as error:  # of an object that was compared
        raise_interrupt(error)
        return len(checks)
    return max(1, len(places) + (not is_of_call and changed_source(variant.sources) is not None))
