"""The basis of loaded variants: the objects that their evidence and weights lead to, watched while they are loaded."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable, Mapping

import torch

from gearcache.guards.access import Access, Scope
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.tree import Tree, evidence_holds
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.interrupts import raise_interrupt


class Basis:
    """The evidence and the weights of one variant, or of several variants that share both."""

    def __init__(self, method: types.FunctionType, variant: StoredVariant, facts: WatchedFacts, scope: Scope) -> None:
        """Take over the watch over the evidence, which was just compared, and watch the weights too."""
        self._method = method
        self.evidence: Tree = variant.evidence
        self._identity = variant.attributes, _read_anew(variant)
        #: Weights that the graphs are bound to, and weights that they write and therefore read on every call.
        self._attributes: dict[str, Access] = {**variant.attributes, **self._identity[1]}
        weights = facts.add_weights(method, self._attributes, scope)
        #: The weights that the graphs are bound to, by their names.
        self.bound: dict[str, torch.Tensor] = {name: weights[name] for name in variant.attributes}
        #: The watch over what must not change for the graphs to remain right.
        self.watched = facts

    def is_of(self, variant: StoredVariant) -> bool:
        """Whether a variant has the same basis."""
        attributes, read_anew = self._identity
        is_same = self.evidence is variant.evidence and attributes is variant.attributes
        return is_same and read_anew == _read_anew(variant)

    def is_right(self, scope: Scope) -> bool:
        """Whether variants would be loaded again unchanged; if so, the present objects are watched from here on."""
        facts = WatchedFacts()
        try:
            if not evidence_holds(self.evidence, scope, facts):
                return False
            weights = facts.add_weights(self._method, self._attributes, scope)
        except Exception as error:
            raise_interrupt(error)
            return False
        if self.watched.has_changed_untold() or not self._are_bound(weights) or not facts.holds():
            return False
        self.watched = facts
        return True

    def has_weights(self, scope: Scope) -> bool:
        """Whether the weights that the graphs are bound to are still in their places, and in their memory."""
        weights = {name: self._attributes[name].find(scope) for name in self.bound}
        return self._are_bound(weights) and not self.watched.has_changed_untold()

    def _are_bound(self, weights: Mapping[str, torch.Tensor]) -> bool:
        return all(weights[name] is tensor for name, tensor in self.bound.items())


def _read_anew(variant: StoredVariant) -> dict[str, Access]:
    return {f"input {number}": item.access for number, item in enumerate(variant.inputs) if not item.in_frame}


def joined(bases: list[Basis]) -> WatchedFacts | None:
    """Return one watch over several bases; None if one does not hold, or two are of different states of the module."""
    if len(bases) == 1:
        return bases[0].watched
    # Another thread may change the module between two of these questions, and between two loads: all are asked twice.
    if not all(basis.watched.holds() for basis in [*bases, *bases]):
        return None
    watched = WatchedFacts()
    for basis in bases:
        watched.include(basis.watched)
    return watched


logger = logging.getLogger("gearcache")


class BindingWatch:
    """The watch over the bases of the loaded variants of one binding."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bases: list[Basis] = []
        #: None if nothing is watched yet, or if these bases never hold together.
        self._watched: WatchedFacts | None = None

    def over(self, bases: list[Basis]) -> Callable[[], bool]:
        """Return a function that checks whether everything is unchanged since these bases were recorded."""
        if self._watched is None or self._bases != bases:
            self._bases, self._watched = bases, joined(bases)
        return self.holds if self._watched is None else self._watched.holds

    def holds(self) -> bool:
        """Whether nothing has changed since these bases were recorded."""
        return not self._bases if self._watched is None else self._watched.holds()

    def is_outdated(self, bases: list[Basis], is_right: Callable[[Basis], bool]) -> bool:
        """Whether one of the bases of the loaded graphs has changed, even if no dispatch has checked it yet.

        If objects were exchanged, but the evidence holds and the same weights are in place, the graphs are still right,
        and the present objects are watched from here on: `is_right` asks that of a basis, for a call.
        """
        if not bases or self.over(bases)():
            return False
        change = "another thread changes it" if self._watched is None else self._watched.change()
        if not all(map(is_right, self._bases)):
            logger.info("%s: changed since it was loaded: %s", self._name, change)
            return True
        self._watched = joined(self._bases)
        return self._watched is None
