"""Whether the module is still as it was when the graphs of a binding were loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gearcache.activate import ActiveVariant
from gearcache.guards.access import Scope
from gearcache.guards.evidence import evidence_failure
from gearcache.guards.watch import Watched
from gearcache.guards.watched_facts import WatchedFacts

logger = logging.getLogger("gearcache")
_FAULTS = (LookupError, AttributeError, TypeError, ImportError, ValueError)


class BindingWatch:
    """The watch over the loaded variants of one binding."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._variants: list[ActiveVariant] = []
        self._watched: Watched | None = None

    def over(self, variants: list[ActiveVariant]) -> Callable[[], bool]:
        """Return the question whether all is as it was when these variants were loaded."""
        if self._watched is None or self._variants != variants:
            facts = WatchedFacts()
            for active in variants:
                facts.include(active.facts)
            self._variants, self._watched = list(variants), Watched(facts)
        return self._watched.holds

    def is_outdated(self, scope: Scope) -> bool:
        """Whether what the loaded graphs rest on has changed.

        Where something was exchanged, but the evidence holds and the weights are the very same in their place, the
        graphs are right still, and what is there now is watched from here on. `scope` is that of a call.
        """
        if self._watched is None:
            return False
        change = self._watched.change()
        if change is None:
            return False
        if self._watched.has_moved_tensors() or not all(_is_right(active, scope) for active in self._variants):
            logger.info("%s: changed since it was loaded: %s", self._name, change)
            return True
        self._watched = None
        return False


def _is_right(active: ActiveVariant, scope: Scope) -> bool:
    """Whether a variant would be loaded again just as it is; what it rests on is collected anew."""
    if evidence_failure(active.variant.evidence, scope) is not None:
        return False
    facts = WatchedFacts()
    try:
        bound = facts.collect(active.variant, scope)
    except _FAULTS:
        return False
    active.facts = facts
    return all(graph.attributes.get(name) is tensor for graph in active.graphs for name, tensor in bound.items())
