"""Evidence: many checks that are run once, when an entry is loaded, stored as a tree of access paths.

Thousands of checks share a few hundred objects on their way. The tree holds each step once and is walked in one
pass, straight from its plain form:

    node     = [checks, children]
    checks   = [[kind, expected], ...]
    children = [[step, argument, node], ...]
    tree     = [[root kind, root name, node], ...]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gearcache.guards.access import _STEPS, Access, Scope, Walker
from gearcache.guards.checks import KINDS, Check, Failure
from gearcache.guards.checks import holds as check_holds

Tree = list[Any]
_FAULTS = (LookupError, AttributeError, TypeError, ImportError, ValueError)


def evidence_tree(checks: Iterable[Check]) -> Tree:
    """Return the plain tree of some checks."""
    tree: Tree = []
    index: dict[Any, Any] = {}
    for check in checks:
        path: tuple[Any, ...] = (check.access.root,)
        node = index.get(path)
        if node is None:
            node = index[path] = [[], []]
            tree.append([*check.access.root, node])
        for step, argument in check.access.steps:
            path = (*path, (step, type(argument).__name__, argument))
            child = index.get(path)
            if child is None:
                child = index[path] = [[], []]
                node[1].append([step, argument, child])
            node = child
        node[0].append([check.kind, check.expected])
    return tree


def evidence_checks(tree: Tree) -> list[Check]:
    """Return the checks of a tree, for people to read; `ValueError` for a kind or step that is not known."""
    found: list[Check] = []

    def collect(access: Access, node: Any) -> None:
        for kind, expected in node[0]:
            if kind not in KINDS:
                raise ValueError(f"unknown check kind {kind!r}")
            found.append(Check(kind, access, expected))
        for step, argument, child in node[1]:
            if step not in _STEPS:
                raise ValueError(f"unknown access step {step!r}")
            collect(access.then(step, argument), child)

    for kind, name, node in tree:
        collect(Access((kind, name)), node)
    return found


def evidence_failure(tree: Tree, scope: Scope) -> Failure | None:
    """Return the first check of a tree that does not hold now, or None."""
    if _holds(tree, scope):
        return None
    walker = Walker(scope)
    for check in evidence_checks(tree):
        failure = check.failure(walker)
        if failure is not None:
            return failure
    return None


def _holds(tree: Tree, scope: Scope) -> bool:
    walker = Walker(scope)

    def holds(value: Any, node: Any) -> bool:
        for kind, expected in node[0]:
            if kind == "type":
                if _type_name(type(value)) != expected:
                    return False
            elif kind == "empty":
                if value:
                    return False
            elif kind == "constant" and expected is None:
                if value is not None:
                    return False
            elif kind == "same":
                if value is not walker.resolve(Access.from_plain(expected)):
                    return False
            elif not check_holds(kind, value, expected):
                return False
        return all(holds(_STEPS[step](value, argument), child) for step, argument, child in node[1])

    try:
        return all(holds(Access((kind, name)).resolve_root(scope), node) for kind, name, node in tree)
    except _FAULTS:
        return False


_type_names: dict[type, str] = {}


def _type_name(cls: type) -> str:
    name = _type_names.get(cls)
    if name is None:
        name = _type_names[cls] = f"{cls.__module__}:{cls.__qualname__}"
    return name
