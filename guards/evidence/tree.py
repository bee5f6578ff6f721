"""Evidence: many checks, stored as a tree of access paths, that run once when an entry is loaded.

Thousands of checks share a few hundred objects on their paths, and most of these are alike (all layers of a model, all
modules without hooks). The tree holds each step once, and equal nodes once; it is walked in one pass, directly in its
plain form:

    node     = [checks, children]
    checks   = [[kind, expected], ...]
    children = [[step, argument, number of a node], ...]
    tree     = [nodes, [[root kind, root name, number of a node], ...]]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import msgpack

from gearcache.guards.access import _STEPS, Access, Scope, Walker
from gearcache.guards.evidence.checks import Check, Failure, first_failure
from gearcache.guards.evidence.kind import Kind, Watching
from gearcache.guards.evidence.kinds import KINDS
from gearcache.interrupts import raise_interrupt

Tree = list[Any]
#: The node at which most steps end: the empty hooks of a module.
EMPTY = [[["empty", True]], []]


def evidence_tree(checks: Iterable[Check]) -> Tree:
    """Return the plain tree of some checks."""
    roots: list[Any] = []
    index: dict[Any, Any] = {}
    for check in checks:
        path: tuple[Any, ...] = (check.access.root,)
        node = index.get(path)
        if node is None:
            node = index[path] = [[], []]
            roots.append([*check.access.root, node])
        for step, argument in check.access.steps:
            path = (*path, (step, type(argument).__name__, argument))
            child = index.get(path)
            if child is None:
                child = index[path] = [[], []]
                node[1].append([step, argument, child])
            node = child
        node[0].append([check.kind, check.expected])
    nodes: list[Any] = []
    numbers: dict[bytes, int] = {}

    def number(node: Any) -> int:
        plain = [node[0], [[step, argument, number(child)] for step, argument, child in node[1]]]
        data = msgpack.encode(plain)
        if data not in numbers:
            numbers[data] = len(nodes)
            nodes.append(plain)
        return numbers[data]

    return [nodes, [[kind, name, number(node)] for kind, name, node in roots]]


def evidence_checks(tree: Tree) -> list[Check]:
    """Return the checks of a tree, for people to read; `ValueError` for an unknown kind or step."""
    nodes, roots = tree
    all_checks: list[Check] = []

    def collect(access: Access, number: int) -> None:
        checks, children = nodes[number]
        for kind, expected in checks:
            if kind not in KINDS:
                raise ValueError(f"unknown check kind {kind!r}")
            all_checks.append(Check(kind, access, expected))
        for step, argument, child in children:
            if step not in _STEPS:
                raise ValueError(f"unknown access step {step!r}")
            collect(access.then(step, argument), child)

    for kind, name, number in roots:
        collect(Access((kind, name)), number)
    return all_checks


def evidence_failure(tree: Tree, scope: Scope) -> Failure | None:
    """Return the first check of a tree that fails now, or None."""
    if evidence_holds(tree, scope):
        return None
    checks = sorted(evidence_checks(tree), key=lambda check: KINDS[check.kind].is_last)
    return first_failure(checks, Walker(scope))


def changed_function(tree: Tree, scope: Scope) -> Failure | None:
    """Return the first changed function or class of a tree, or None."""
    return first_failure([check for check in evidence_checks(tree) if KINDS[check.kind].is_code], Walker(scope))


def evidence_holds(tree: Tree, scope: Scope, watch: Watching | None = None) -> bool:
    """Return whether all checks of a tree hold now; `watch` is told of all objects before they are read."""
    _, roots = tree
    comparison = _Comparison(tree, Walker(scope), watch)
    try:
        if watch is not None:
            watch.begin(tree, scope)
        for kind, name, number in roots:
            access = Access((kind, name))
            if watch is not None:
                watch.add_root(access)
            if not comparison.holds(access.resolve_root(scope), number):
                return False
        return comparison.last_hold()
    except Exception as error:
        raise_interrupt(error)
        return False
    finally:
        if watch is not None:
            watch.end()


class _Comparison:
    """One pass over a tree.

    A class, as a closure that calls itself would keep what it has walked until the garbage collector runs.
    """

    __slots__ = ("_classes", "_empty", "_last", "_nodes", "_walker", "_watch")

    def __init__(self, tree: Tree, walker: Walker, watch: Watching | None) -> None:
        self._nodes, _ = tree
        self._empty = self._nodes.index(EMPTY) if EMPTY in self._nodes else None
        self._walker, self._classes, self._watch = walker, walker.classes, watch
        #: The checks that use the classes which all others have seen.
        self._last: list[tuple[Kind, Any, Any]] = []

    def holds(self, value: Any, number: int) -> bool:
        """Return whether all checks of a node hold for a value, those of `last_hold` excepted."""
        if self._watch is not None:
            self._watch.add_node(value, number)
        checks, children = self._nodes[number]
        for kind, expected in checks:
            # The most frequent check: a class seen before.
            if kind == "type" and self._classes.get(expected) is type(value):
                continue
            row = KINDS[kind]
            if row.is_last:
                self._last.append((row, value, expected))
            elif not row.holds(value, expected, self._walker):
                return False
        for step, argument, child in children:
            inner = getattr(value, argument) if step == "attr" else _STEPS[step](value, argument)
            if child == self._empty:
                if inner:
                    return False
            elif not self.holds(inner, child):
                return False
        return True

    def last_hold(self) -> bool:
        """Return whether the checks hold that come after all others."""
        return all(row.holds(value, expected, self._walker) for row, value, expected in self._last)
