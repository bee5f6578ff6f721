"""What to watch of a loaded variant: the objects on the way to everything that its evidence and weights rest on.

The evidence is a tree of access paths (`guards.evidence.tree`). Each step of a path reads a dictionary, a list or a
class; as long as these hold the very same objects, the evidence holds and need not be looked at again.
"""

from __future__ import annotations

import abc
import builtins
import collections
import gc
import os
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from gearcache.guards.access import _STEPS, MODULE_PARTS, Access, Scope, own_attributes
from gearcache.guards.evidence.members import all_names, is_immutable
from gearcache.guards.evidence.tree import EMPTY, Tree
from gearcache.guards.watch.evidence_plan import EvidencePlan, is_key
from gearcache.guards.watch.questions import Questions

_HOOKS = torch.utils.hooks.RemovableHandle
_OF_DESCRIPTORS = frozenset({"__get__", "__set__", "__delete__"})
#: Slots that cannot be assigned.
_FIXED_SLOTS = {
    *((types.FunctionType, name) for name in ("__closure__", "__globals__", "__builtins__")),
    *((types.MethodType, name) for name in ("__func__", "__self__")),
    *((property, name) for name in ("fget", "fset", "fdel")),
}
_ABSENT = object()


class WatchedFacts:
    """Containers and the keys in them that matter, each once, with words for where they are."""

    def __init__(self) -> None:
        self._scope = Scope({}, {})
        self._members: dict[tuple[type, str], Any] = {}
        #: Steps of paths that were added: what was stepped from, kept so that its identity is its own, and to.
        self._met: dict[tuple[int, str, Any], tuple[Any, Any]] = {}
        #: By identity: a dictionary or class, the keys that matter (None: all of them), and what it belongs to.
        self.dicts: dict[int, tuple[Any, dict[Any, None] | None, str]] = {}
        self.lists: dict[int, list[Any]] = {}
        #: Sets and queues, which are compared as a whole.
        self.collections: dict[int, Any] = {}
        self.cells: dict[int, types.CellType] = {}
        #: By identities: an object, and the descriptor of one of its slots.
        self.slots: dict[tuple[int, int], tuple[Any, types.MemberDescriptorType]] = {}
        self.tensors: dict[int, torch.Tensor] = {}
        #: Classes that a trace met, of which bases and many names matter: the former, and the latter with the names.
        self.classes: dict[int, type] = {}
        self.named: dict[int, tuple[type, frozenset[str]]] = {}
        self.functions: dict[int, types.FunctionType] = {}
        #: The method itself, where one variant's facts are noted: no evidence tells of it.
        self.method: types.FunctionType | None = None
        self.questions = Questions()

    def collect(
        self, method: types.FunctionType, evidence: Tree, attributes: Mapping[str, Access], scope: Scope
    ) -> dict[str, torch.Tensor]:
        """Add all that evidence which holds and weights rest on; returns the tensors that the graphs are bound to."""
        self.method = method
        self._add_function(method)
        self._scope = scope
        try:
            self._add_evidence(evidence)
            bound: dict[str, torch.Tensor] = {name: self._add_path(path) for name, path in attributes.items()}
        finally:  # nothing of the call is kept
            self._scope, self._met = Scope({}, {}), {}
        self.tensors |= {id(tensor): tensor for tensor in bound.values()}
        return bound

    def include(self, other: WatchedFacts) -> None:
        """Add what another collection holds."""
        for holder, keys, owner in other.dicts.values():
            self._add_keys(holder, keys, owner)
        for name in ("lists", "collections", "cells", "slots", "tensors", "classes", "functions"):
            getattr(self, name).update(getattr(other, name))
        self.questions.include(other.questions)
        for cls, names in other.named.values():
            self._add_named(cls, names)

    def _add_evidence(self, tree: Tree) -> None:
        """Add all that the paths of an evidence tree go through; its checks hold now."""
        nodes, roots = tree
        empty = nodes.index(EMPTY) if EMPTY in nodes else None
        plans = [EvidencePlan(checks, children, empty) for checks, children in nodes]
        has_hooks = any(child == empty for _, children in nodes for _, _, child in children)

        def walk(value: Any, number: int) -> None:
            plan = plans[number]
            for kind, expected in plan.checks:
                self._add_check(value, kind, expected)
            if plan.attributes:
                self._add_attributes(value, plan.attributes)
            if plan.keys:
                self._add_items(value, plan.keys)
            for step, argument in plan.steps:
                self._add_step(value, step, argument)
            for step, argument, child in plan.children:
                walk(getattr(value, argument) if step == "attr" else _STEPS[step](value, argument), child)

        for kind, name, number in roots:
            walk(self._root(Access((kind, name))), number)
        if has_hooks:  # of all modules at once: every registration takes a number
            self._add_keys(_HOOKS, ("next_id",), "hooks")

    def _add_path(self, access: Access) -> Any:
        """Add all that one path goes through; returns what it leads to."""
        value = self._root(Access(access.root))
        for step, argument in access.steps:
            met = id(value), step, argument
            if met in self._met:
                value = self._met[met][1]
                continue
            if step == "attr":
                self._add_attributes(value, (argument,))
            elif is_key(step, argument):
                self._add_items(value, (argument,))
            else:
                self._add_step(value, step, argument)
            holder, value = value, _STEPS[step](value, argument)
            self._met[met] = holder, value
        return value

    def _root(self, access: Access) -> Any:
        kind, name = access.root
        if kind == "global":
            self._add_keys(self._scope.module_globals, (name,), "globals")
            if name not in self._scope.module_globals:
                self._add_keys(vars(builtins), (name,), "builtins")
        elif kind == "closure":
            self._add_cell(self._scope.closure[name])
        elif kind == "module":
            self._add_keys(sys.modules, (name,), "sys.modules")
        elif kind == "environment":
            environment: Any = os.environ
            self._add_keys(environment._data, (environment.encodekey(name),), "the environment")
        return access.resolve_root(self._scope)

    def _add_check(self, value: Any, kind: str, expected: Any) -> None:
        if kind == "same":
            self._add_path(Access.from_plain(expected))
        elif kind in ("has_attr", "no_attr", "not_own"):
            self._add_attributes(value, (str(expected),))
        elif kind == "constant":
            self._add_content(value)
        elif kind in ("function", "definition"):
            self._add_function(value)
        elif kind in ("instance", "subclass"):
            self._add_type_test(value, self._add_path(Access.from_plain(expected[0])))
        elif kind == "classes":
            self._add_classes(expected)
        elif isinstance(value, torch.Tensor):
            self.tensors[id(value)] = value
        else:
            self._add_container(value)

    def _add_classes(self, expected: list[Any]) -> None:
        """Watch the bases of classes, and what the names that matter lead to in each of them."""
        names, classes, paths = expected
        of_met, of_made = all_names(names, made=False), all_names(names, made=True)
        for path, numbers in paths:
            cls = self._add_path(Access.from_plain(path))
            self.classes[id(cls)] = cls
            for base, number in zip(cls.__mro__, numbers, strict=True):
                if is_immutable(base):
                    continue
                _, made, library, _ = classes[number]
                self._add_named(base, of_made if made else of_met)
                for value in [base.__dict__[name] for name in of_made.intersection(base.__dict__)]:
                    if made and not library:
                        self._add_function(value)
                    if not is_immutable(type(value)):
                        self._add_named(type(value), _OF_DESCRIPTORS)

    def _add_type_test(self, value: Any, asked: Any) -> None:
        """Watch what code of a class may look at that decides what its instances are."""
        self.questions.add_abstract_classes()
        for cls in (*asked.__mro__, *type(asked).__mro__):
            if not is_immutable(cls):
                self._add_keys(cls, None, cls.__name__)
        protocols = [cls for cls in asked.__mro__ if "_is_protocol" in vars(cls)]
        if not protocols and type(asked) is abc.ABCMeta:
            return
        names = {name for cls in protocols for name in (*vars(cls), *vars(cls).get("__annotations__", ()))} or None
        for cls in (value if isinstance(value, type) else type(value)).__mro__:
            if not is_immutable(cls):
                self._add_keys(cls, names, cls.__name__)
        own = own_attributes(value)
        if own is not None:
            self._add_keys(own, names, type(value).__name__)

    def _add_named(self, cls: type, names: frozenset[str]) -> None:
        kept = self.named.get(id(cls))
        self.named[id(cls)] = (cls, names if kept is None or kept[1] is names else kept[1] | names)

    def _add_function(self, value: Any) -> None:
        """Watch the code and the defaults of a function, or of what a descriptor holds."""
        for inner in (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),):
            if isinstance(inner, types.FunctionType):
                self.functions[id(inner)] = inner
                if inner.__kwdefaults__ is not None:
                    self._add_container(inner.__kwdefaults__)

    def _add_container(self, value: Any) -> None:
        """Watch all that a container holds, without what is in that."""
        value = _plain(value)
        if isinstance(value, (dict, type)):
            self._add_keys(value, None, "a dictionary")
            if type(value) is collections.OrderedDict and len(value) > 1:  # `move_to_end` writes nothing
                self.collections[id(value)] = value
        elif isinstance(value, list):
            self.lists[id(value)] = value
        elif type(value) in (set, collections.deque):
            self.collections[id(value)] = value

    def _add_content(self, value: Any) -> None:
        """Watch a container that was compared as a whole, and those in it."""
        if isinstance(value, type) or not isinstance(value, (list, tuple, dict, set, types.MappingProxyType)):
            return
        self._add_container(value)
        for item in value.values() if isinstance(value, (dict, types.MappingProxyType)) else value:
            self._add_content(item)

    def _add_items(self, value: Any, keys: Iterable[Any]) -> None:
        """Watch some keys, of a dictionary; else the whole container."""
        holder = _plain(value)
        if isinstance(holder, dict):
            self._add_keys(holder, keys, "a dictionary")
        else:
            self._add_container(holder)

    def _add_step(self, value: Any, step: str, argument: Any) -> None:
        if step == "member":
            self._add_member(value, argument)
        elif step in ("call", "called_with"):
            self.questions.add_call(value, argument)
        elif step not in ("type", "fields"):
            self._add_container(value)

    def _add_attributes(self, value: Any, names: Iterable[str]) -> None:
        if isinstance(value, type):
            for name in names:
                self._add_member(value, name)
        elif isinstance(value, types.CellType):
            self._add_cell(value)
        else:
            if isinstance(value, types.FunctionType):
                self._add_function(value)
            own = own_attributes(value)
            if own is not None:
                self._add_keys(own, names, type(value).__name__)
            missing = names if own is None else [name for name in names if name not in own]
            self.questions.add_settings(value, missing)
            if not isinstance(value, (torch.Tensor, types.ModuleType)):
                for name in missing:
                    self._add_inherited(value, name, own)

    def _add_inherited(self, value: Any, name: str, own: dict[str, Any] | None) -> None:
        """Watch an attribute that an object does not hold in its own dictionary."""
        if name in ("__dict__", "__class__"):
            return
        member = self._add_member(type(value), name)
        if type(member) is types.MemberDescriptorType and (type(value), name) not in _FIXED_SLOTS:
            self.slots[id(value), id(member)] = (value, member)
        if member is not _ABSENT or own is None or not isinstance(value, torch.nn.Module):
            return
        for part in MODULE_PARTS:
            held = own.get(part)
            if isinstance(held, dict):
                self._add_keys(held, (name,), type(value).__name__)
                if name in held:
                    return

    def _add_member(self, cls: type, name: str) -> Any:
        """Watch where a class finds a member; returns the member as it stands in the class."""
        if (cls, name) in self._members:
            return self._members[cls, name]
        found: Any = _ABSENT
        for base in cls.__mro__:
            self._add_keys(base, (name,), base.__name__)
            if name in base.__dict__:
                found = base.__dict__[name]
                break
        self._members[cls, name] = found
        return found

    def _add_keys(self, holder: Any, keys: Iterable[Any] | None, owner: str) -> None:
        """Watch some keys of a dictionary or class; None for all of them."""
        kept = self.dicts.get(id(holder))
        if keys is None:
            self.dicts[id(holder)] = (holder, None, owner)
        elif kept is None:
            self.dicts[id(holder)] = (holder, dict.fromkeys(keys), owner)
        elif kept[1] is not None:
            kept[1].update(dict.fromkeys(keys))

    def _add_cell(self, cell: types.CellType) -> None:
        self.cells[id(cell)] = cell


def _plain(value: Any) -> Any:
    """Return what a view of a class's dictionary shows: the dictionary that the class holds."""
    return next(iter(gc.get_referents(value))) if type(value) is types.MappingProxyType else value
