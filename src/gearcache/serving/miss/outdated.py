"""Which variants of an entry this process has no use for: those of other code, or of other facts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gearcache.guards.access import Walker
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.checks import first_failure
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.evidence.tree import changed_function
from gearcache.serving.call.call import Call
from gearcache.serving.find.evidence import EvidenceCheck
from gearcache.serving.find.loaded import loaded_in_process


def is_edited(variant: StoredVariant, call: Call) -> bool:
    """Whether the source that a variant was traced from has changed."""
    if changed_source(variant.sources) is not None:
        return True
    return _has_types_of(variant, call) and changed_function(variant.evidence, call.scope) is not None


def is_left_over(variant: StoredVariant, call: Call, evidence: EvidenceCheck) -> bool:
    """Whether a variant is of other facts, such as the constants of an earlier deployment, and of no instance here."""
    return (
        _has_types_of(variant, call)
        and evidence.stale_reason(variant) is not None
        and not any(are_of_one_trace(variant, loaded) for loaded in loaded_in_process())
    )


def _has_types_of(variant: StoredVariant, call: Call) -> bool:
    """Whether a variant takes arguments of the types of a call: evidence is about the classes of its own arguments."""
    types = [check for check in variant.call_checks if check.kind == "type"]
    return first_failure(types, Walker(call.scope)) is None


def outdated(variants: Sequence[StoredVariant], call: Call, count: int, most_left_over: int) -> list[StoredVariant]:
    """Return up to `count` variants to drop for a new one, the oldest first.

    Those of edited source go before those that are left over, of which at most `most_left_over` go.
    """
    edited = [variant for variant in variants if is_edited(variant, call)][:count]
    evidence = EvidenceCheck(call.scope)
    others = [variant for variant in variants if all(variant is not each for each in edited)]
    left_over = (variant for variant in others if is_left_over(variant, call, evidence))
    return edited + list(itertools.islice(left_over, max(0, min(most_left_over, count - len(edited)))))


def are_of_one_trace(one: StoredVariant, other: StoredVariant) -> bool:
    """Whether two variants differ at most in their gears."""
    return one.evidence == other.evidence and one.call_checks == other.call_checks
