"""Checks whether the module is unchanged since the graphs of a binding were loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gearcache.guards.access import Scope
from gearcache.guards.watch.watch import Watched
from gearcache.serving.find.activate import ActiveVariant
from gearcache.serving.find.basis import Basis, joined

logger = logging.getLogger("gearcache")


class BindingWatch:
    """The watch over the loaded variants of one binding."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bases: list[Basis] = []
        self._watched: Watched | None = None

    def over(self, variants: list[ActiveVariant]) -> Callable[[], bool]:
        """Return a function that checks whether everything is unchanged since these variants were loaded."""
        bases = list(dict.fromkeys(active.basis for active in variants))
        if self._watched is None or self._bases != bases:
            self._bases, self._watched = bases, joined(bases)
        return self._watched.holds

    def is_outdated(self, variants: list[ActiveVariant], scope: Scope) -> bool:
        """Whether the basis of these loaded graphs has changed, even if no dispatch has checked it yet.

        If objects were exchanged, but the evidence holds and the same weights are in place, the graphs are still right,
        and the present objects are watched from here on. `scope` is that of a call.
        """
        if not variants or self.over(variants)() or self._watched is None:
            return False
        change = self._watched.change()
        if not all(basis.is_right(scope) for basis in self._bases):
            logger.info("%s: changed since it was loaded: %s", self._name, change)
            return True
        self._watched = None
        return False
