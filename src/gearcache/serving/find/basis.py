"""The basis of loaded variants: the objects that their evidence and weights lead to, watched while they are loaded."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable

import torch

from gearcache.guards.access import FAULTS, Access, Scope
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.tree import Tree, evidence_failure
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.guards.watch.watch import Watched


class Basis:
    """The evidence and the weights of one variant, or of several variants that share both."""

    def __init__(self, method: types.FunctionType, variant: StoredVariant, scope: Scope) -> None:
        """Record the present objects; the evidence was just checked and holds."""
        self._method = method
        self._evidence: Tree = variant.evidence
        self._identity = variant.attributes, _read_anew(variant)
        #: Weights that the graphs are bound to, and weights that they write and therefore read on every call.
        self._attributes: dict[str, Access] = {**variant.attributes, **self._identity[1]}
        #: What must not change for the graphs to remain right.
        self.facts, weights = self._collected(scope)
        #: The weights that the graphs are bound to, by their names.
        self.bound: dict[str, torch.Tensor] = {name: weights[name] for name in variant.attributes}
        #: The watch over the facts, started before they were last checked.
        self.watched = Watched(self.facts)

    def is_of(self, variant: StoredVariant) -> bool:
        """Whether a variant has the same basis."""
        attributes, read_anew = self._identity
        is_same = self._evidence is variant.evidence and attributes is variant.attributes
        return is_same and read_anew == _read_anew(variant)

    def is_current(self, scope: Scope) -> bool:
        """Whether nothing was changed before the watch began; only another thread could have changed it."""
        return self._is_watched(self.facts, self.watched, scope)

    def is_right(self, scope: Scope) -> bool:
        """Whether variants would be loaded again unchanged; if so, their basis is recorded anew."""
        is_alone = runs_alone()
        try:
            if evidence_failure(self._evidence, scope) is not None:
                return False
            facts, weights = self._collected(scope)
            watched = Watched(facts)
        except FAULTS:
            return False
        if self.watched.has_changed_untold() or not self._are_bound(weights):
            return False
        if not is_alone and not self._is_watched(facts, watched, scope):
            return False
        self.facts, self.watched = facts, watched
        return True

    def _collected(self, scope: Scope) -> tuple[WatchedFacts, dict[str, torch.Tensor]]:
        """Return what evidence and weights lead to now, and the weights."""
        facts = WatchedFacts()
        weights = facts.collect(self._method, self._evidence, self._attributes, scope)
        return facts, weights

    def _is_watched(self, facts: WatchedFacts, watched: Watched, scope: Scope) -> bool:
        """Whether a watch over some facts covers everything that the evidence, which holds, and the weights lead to.

        Another thread may have exchanged an object after the facts were collected and before the watch began. Then the
        paths lead through an object that nobody watches, even if the evidence holds for it.
        """
        try:
            if evidence_failure(self._evidence, scope) is not None:
                return False
            later_facts, weights = self._collected(scope)
            missing = facts.missing_of(later_facts)
            # Some steps of paths make an object each time: another walk finds none of these again.
            latest_facts = self._collected(scope)[0] if missing else later_facts
        except FAULTS:
            return False
        is_covered = not any(latest_facts.has(*each) for each in missing)
        return is_covered and self._are_bound(weights) and watched.holds()

    def _are_bound(self, weights: dict[str, torch.Tensor]) -> bool:
        return all(weights[name] is tensor for name, tensor in self.bound.items())


def runs_alone() -> bool:
    """Whether no other thread runs Python code, and none can start one while this thread does not."""
    return len(sys._current_frames()) == 1


def _read_anew(variant: StoredVariant) -> dict[str, Access]:
    return {f"input {number}": item.access for number, item in enumerate(variant.inputs) if not item.in_frame}


class Bases:
    """The bases that one load has recorded so far; made before the load compares evidence."""

    def __init__(self) -> None:
        self._recorded: list[Basis] = []
        #: Asked before any evidence is compared: a thread that changes something may have ended by the time of `of`.
        self._is_alone = runs_alone()

    def of(self, method: types.FunctionType, variant: StoredVariant, scope: Scope) -> Basis | None:
        """Return the basis of a variant whose evidence holds; None if another thread has just changed something."""
        for basis in self._recorded:
            if basis.is_of(variant):
                if basis.watched.holds():
                    return basis
                self._recorded.remove(basis)
                return None
        basis = Basis(method, variant, scope)
        if not self._is_alone and not basis.is_current(scope):
            return None
        self._recorded.append(basis)
        return basis


def joined(bases: list[Basis]) -> Watched:
    """Return one watch over several bases; if one watch has already seen a change, return that one."""
    if len(bases) == 1:
        return bases[0].watched
    facts = WatchedFacts()
    for basis in bases:
        facts.include(basis.facts)
    watched = Watched(facts)
    return next((basis.watched for basis in bases if not basis.watched.holds()), watched)


logger = logging.getLogger("gearcache")


class BindingWatch:
    """The watch over the bases of the loaded variants of one binding."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bases: list[Basis] = []
        self._watched: Watched | None = None

    def over(self, bases: list[Basis]) -> Callable[[], bool]:
        """Return a function that checks whether everything is unchanged since these bases were recorded."""
        if self._watched is None or self._bases != bases:
            self._bases, self._watched = bases, joined(bases)
        return self._watched.holds

    def is_outdated(self, bases: list[Basis], scope: Scope) -> bool:
        """Whether one of the bases of the loaded graphs has changed, even if no dispatch has checked it yet.

        If objects were exchanged, but the evidence holds and the same weights are in place, the graphs are still right,
        and the present objects are watched from here on. `scope` is that of a call.
        """
        if not bases or self.over(bases)() or self._watched is None:
            return False
        change = self._watched.change()
        if not all(basis.is_right(scope) for basis in self._bases):
            logger.info("%s: changed since it was loaded: %s", self._name, change)
            return True
        self._watched = None
        return False
