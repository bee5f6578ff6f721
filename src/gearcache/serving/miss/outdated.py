"""Which variants of an entry this process has no use for: those of other code, or of other facts."""

from __future__ import annotations

from collections.abc import Sequence

from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.evidence.tree import changed_function
from gearcache.serving.call.call import Call
from gearcache.serving.find.activate import EvidenceCheck
from gearcache.serving.find.loaded import loaded_in_process


def is_edited(variant: StoredVariant, call: Call) -> bool:
    """Whether the source that a variant was traced from has changed."""
    return changed_source(variant.sources) is not None or changed_function(variant.evidence, call.scope) is not None


def outdated(variants: Sequence[StoredVariant], call: Call, count: int, most_stale: int) -> list[StoredVariant]:
    """Return up to `count` variants to drop for a new one: those of edited source, then those of other facts.

    Of the latter, such as the constants of an earlier deployment, up to `most_stale`, and none that this process has
    loaded, maybe for another instance. The oldest go first.
    """
    edited = [variant for variant in variants if is_edited(variant, call)][:count]
    most_stale = min(most_stale, count - len(edited))
    if most_stale <= 0:
        return edited
    evidence, loaded = EvidenceCheck(call.scope), loaded_in_process()
    stale = [
        variant
        for variant in variants
        if all(variant is not each for each in edited)
        and evidence.stale_reason(variant) is not None
        and not any(_are_of_one_trace(variant, each) for each in loaded)
    ]
    return edited + stale[:most_stale]


def _are_of_one_trace(one: StoredVariant, other: StoredVariant) -> bool:
    """Whether two variants differ at most in their gears."""
    return one.evidence == other.evidence and one.call_checks == other.call_checks
