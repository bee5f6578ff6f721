"""Checks whether traced source was edited since."""

from __future__ import annotations

from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.evidence.tree import changed_function
from gearcache.serving.call.call import Call


def is_edited(variant: StoredVariant, call: Call) -> bool:
    """Whether the source that a variant was traced from has changed."""
    return changed_source(variant.sources) is not None or changed_function(variant.evidence, call.scope) is not None
