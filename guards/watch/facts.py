"""Collect what to watch for a loaded variant: all objects on the paths of its evidence and weights.

The evidence is a tree of access paths (`guards.evidence.tree`). Each step of a path reads a dictionary, a list or a
class; as long as these hold the same objects, the evidence holds and need not be checked again.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

import torch

from gearcache.guards.access import _STEPS, Access, Scope
from gearcache.guards.evidence.kinds import KINDS
from gearcache.guards.evidence.members import all_names, is_immutable
from gearcache.guards.evidence.tree import EMPTY, Tree
from gearcache.guards.watch.objects import WatchedObjects
from gearcache.guards.watch.questions import of_abstract_classes, of_call, of_reached
from gearcache.guards.watch.watch import Watch, new_watch

_HOOKS = torch.utils.hooks.RemovableHandle
_OF_DESCRIPTORS = frozenset({"__get__", "__set__", "__delete__"})
_PLAIN_KEYS = (str, int, bytes)


class WatchedFacts(WatchedObjects):
    """The objects that the evidence and the weights of variants lead to."""

    def __init__(self) -> None:
        super().__init__()
        self._scope = Scope({}, {})
        self._plans: list[EvidencePlan] = []
        #: Steps of paths that were added: the source object, kept alive so that its identity stays unique, and the
        #: target.
        self._steps: dict[tuple[int, str, Any], tuple[Any, Any]] = {}
        #: Over what no evidence covers: the memory of tensors, the code and the defaults of methods.
        self._uncovered: Watch = new_watch()

    def begin(self, tree: Tree, scope: Scope) -> None:
        """Prepare for a walk over an evidence tree, which calls `add_root` and `add_node` before it reads anything."""
        nodes, _ = tree
        empty = nodes.index(EMPTY) if EMPTY in nodes else None
        self._scope, self._steps = scope, {}
        self._plans = [EvidencePlan(checks, children, empty) for checks, children in nodes]
        if any(child == empty for _, children in nodes for _, _, child in children):
            # The hooks of all modules at once: every registration increments a counter.
            self._add_keys(_HOOKS, ("next_id",), "hooks")

    def end(self) -> None:
        """Drop what only a walk needs: objects of the call among it."""
        self._scope, self._steps, self._plans = Scope({}, {}), {}, []

    def add_weights(
        self, method: types.FunctionType, attributes: Mapping[str, Access], scope: Scope
    ) -> dict[str, torch.Tensor]:
        """Watch the weights of a variant, with the paths to them, and the method itself; returns the weights."""
        self._add("function", method)
        self._uncovered.add("function", method)
        self._scope = scope
        try:
            weights: dict[str, torch.Tensor] = {}
            for name, path in attributes.items():
                weights[name] = self.add_path(path)
                self._add_tensor(weights[name])
            return weights
        finally:
            self.end()

    def has_changed_untold(self) -> bool:
        """Return whether something changed that no evidence covers: a tensor's memory, a method's code or defaults."""
        return not self._uncovered.holds()

    def add_node(self, value: Any, number: int) -> None:
        """Watch what one node of the evidence reads of a value."""
        plan = self._plans[number]
        for watch, expected in plan.checks:
            watch(self, value, expected)
        if plan.attributes:
            self.add_attributes(value, plan.attributes)
        if plan.keys:
            self._add_items(value, plan.keys)
        for step, argument in plan.steps:
            self._add_step(value, step, argument)

    def add_path(self, access: Access) -> Any:
        """Add all objects on one path; returns the value at its end."""
        value = self.add_root(Access(access.root))
        for step, argument in access.steps:
            step_key = id(value), step, argument
            if step_key in self._steps:
                value = self._steps[step_key][1]
                continue
            if step == "attr":
                self.add_attributes(value, (argument,))
            elif is_key(step, argument):
                self._add_items(value, (argument,))
            else:
                self._add_step(value, step, argument)
            holder, value = value, _STEPS[step](value, argument)
            self._steps[step_key] = holder, value
        return value

    def add_root(self, access: Access) -> Any:
        """Watch the root of a path; returns the object there."""
        kind, name = access.root
        if kind == "global":
            self._add_keys(self._scope.module_globals, (name,), "globals")
            if name not in self._scope.module_globals:
                self._add_keys(vars(builtins), (name,), "builtins")
        elif kind == "closure":
            self._add("cell", self._scope.closure[name])
        elif kind == "module":
            self._add_keys(sys.modules, (name,), "sys.modules")
        elif kind == "environment":
            environment: Any = os.environ
            self._add_keys(environment._data, (environment.encodekey(name),), "the environment")
        return access.resolve_root(self._scope)

    def add_value(self, value: Any) -> None:
        """Watch a tensor, or the content of a container."""
        if isinstance(value, torch.Tensor):
            self._add_tensor(value)
        else:
            self._add_container(value)

    def _add_tensor(self, value: torch.Tensor) -> None:
        if id(value) not in self._objects["tensor"]:
            self._uncovered.add("tensor", value)
        self._add("tensor", value)

    def add_classes(self, expected: list[Any]) -> None:
        """Watch the bases of classes, and the values of the names that count in each of them."""
        names, classes, paths = expected
        counted_names, made_names = all_names(names, made=False), all_names(names, made=True)
        for path, numbers in paths:
            cls = self.add_path(Access.from_plain(path))
            self._add("class", cls)
            for base, number in zip(cls.__mro__, numbers, strict=True):
                if is_immutable(base):
                    continue
                _, is_made, library, _ = classes[number]
                self._add_named(base, made_names if is_made else counted_names)
                for value in [base.__dict__[name] for name in made_names.intersection(base.__dict__)]:
                    if is_made and not library:
                        self.add_function(value)
                    if not is_immutable(type(value)):
                        self._add_named(type(value), _OF_DESCRIPTORS)

    def add_reached(self, value: Any) -> None:
        """Watch a function that the graph holds untraced, and all that it uses: each call describes it anew."""
        self._ask(of_reached(value))

    def add_type_test(self, cls: Any) -> None:
        """Watch what `issubclass` reads of a class: its registry, and the hook of an abstract class."""
        self._ask(of_abstract_classes())
        for each in (*cls.__mro__, *type(cls).__mro__):
            if not is_immutable(each):
                self._add_keys(each, None, each.__name__)

    def _add_step(self, value: Any, step: str, argument: Any) -> None:
        if step == "member":
            self._add_member(value, argument)
        elif step in ("call", "called_with"):
            self._ask(of_call(value, argument))
        elif step not in ("type", "fields"):
            self._add_container(value)


class EvidencePlan:
    """What one node of an evidence tree watches, made once for all values that the node stands for.

    `empty` is the number of the node of empty containers.
    """

    __slots__ = ("attributes", "checks", "keys", "steps")

    def __init__(self, checks: list[Any], children: list[Any], empty: int | None) -> None:
        self.checks: list[tuple[Any, Any]] = []
        self.attributes: list[str] = []
        self.keys: dict[Any, None] = {}
        self.steps: list[tuple[str, Any]] = []
        has_attributes = any(step == "attr" for step, _, _ in children)
        for name, expected in checks:
            if name == "type" and has_attributes:
                continue  # attributes are watched with the class of their object
            kind = KINDS[name]
            if kind.reads_key and type(expected) in _PLAIN_KEYS:
                self.keys[expected] = None
            elif kind.watch is not None:
                self.checks.append((kind.watch, expected))
        for step, name, number in children:
            if step == "attr":
                self.attributes.append(name)
            if number == empty:
                continue
            if is_key(step, name):
                self.keys[name] = None
            elif step != "attr":
                self.steps.append((step, name))


def is_key(step: str, key: Any) -> bool:
    """Return whether a step reads one key, where the value is a dictionary."""
    return step in ("item", "dict_item") and type(key) in _PLAIN_KEYS
