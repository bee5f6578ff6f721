"""Compares the evidence of stored variants with a call's module and process; to load graphs on it, also watches it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.access import Scope
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.evidence.traced_files import changed_source
from gearcache.guards.evidence.tree import Tree, evidence_failure, evidence_holds
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.serving.find.basis import Basis

#: How often evidence is compared while another thread changes what it leads to.
_ATTEMPTS = 3


class EvidenceCheck:
    """Checks the evidence of the variants of one entry for one call; shared evidence is checked once."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked_parts: list[Any] = []

    def stale_reason(self, variant: StoredVariant) -> Reason | None:
        """Return the first dependency of the trace that has changed, or None if the evidence holds."""
        for part in (variant.sources, variant.evidence):
            if any(part is checked for checked in self._checked_parts):
                continue
            reason = changed_source(part) if isinstance(part, dict) else self._failure(part)
            if reason is not None:
                return reason
            self._checked_parts.append(part)
        return next(filter(None, map(_regrouped, variant.gears)), None)

    def _failure(self, tree: Tree) -> Reason | None:
        failure = evidence_failure(tree, self._scope)
        if failure is None:
            return None
        if failure.check.kind != "function":
            return failure.reason("evidence")
        value = failure.check.access.find(self._scope)
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        if not isinstance(code, types.CodeType):
            return failure.reason("source")
        file, line = code.co_filename, code.co_firstlineno
        return replace(failure.reason("source"), file=file, line=line)


class WatchedEvidence(EvidenceCheck):
    """Checks evidence to load graphs on it: all that it leads to is watched, from before it is compared."""

    def __init__(self, scope: Scope, method: types.FunctionType, check_key: Callable[[], None]) -> None:
        """`check_key` is called whenever further weights are watched: it compares their layout."""
        super().__init__(scope)
        self._method = method
        self._check_key = check_key
        self._watches: list[tuple[Tree, WatchedFacts]] = []
        self._bases: list[Basis] = []

    def basis_of(self, variant: StoredVariant) -> Basis | Reason:
        """Return the basis of a variant, or why its evidence does not hold."""
        for _ in range(_ATTEMPTS):
            reason = self.stale_reason(variant)
            if reason is not None:
                return reason
            basis = self._watched_basis(variant)
            if basis is not None and basis.watched.holds():
                return basis
            self._forget(variant.evidence)  # another thread changed something, or reading an attribute has set it
        return Reason("evidence", "another thread changed the module while this was loaded")

    def _failure(self, tree: Tree) -> Reason | None:
        facts = WatchedFacts()
        if not evidence_holds(tree, self._scope, facts):
            return super()._failure(tree)  # None if what failed has been changed back: nothing is watched then
        self._watches.append((tree, facts))
        return None

    def _watched_basis(self, variant: StoredVariant) -> Basis | None:
        for basis in self._bases:
            if basis.is_of(variant):
                return basis
        for tree, facts in self._watches:
            if tree is variant.evidence:
                basis = Basis(self._method, variant, facts, self._scope)
                self._check_key()  # after it: another thread may have given the module a weight of another layout
                self._bases.append(basis)
                return basis
        return None

    def _forget(self, evidence: Tree) -> None:
        self._watches = [each for each in self._watches if each[0] is not evidence]
        self._bases = [basis for basis in self._bases if basis.evidence is not evidence]
        self._checked_parts = [part for part in self._checked_parts if part is not evidence]


def _regrouped(gear: StoredGear) -> Reason | None:
    """Return a process group of a graph whose ranks have changed, or that is gone, as the reason of a miss.

    If a method uses only the name of a group, nothing else compares it, and the graph may contain its size.
    """
    for name, ranks in gear.groups:
        present_ranks = private_core.process_group_ranks(name)
        if present_ranks != ranks:
            subject = f"torch.distributed's process group {name!r}"
            present_text = "not there" if present_ranks is None else f"of the ranks {present_ranks}"
            text = f"{subject} is {present_text}, stored: of the ranks {ranks}"
            return Reason("evidence", text, subject, f"of the ranks {ranks}", present_text)
    return None
