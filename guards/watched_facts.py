"""What to watch of a loaded variant: the objects on the way to everything that its evidence and weights rest on.

The evidence is a tree of access paths (`guards.evidence`). Each step of a path reads a dictionary, a list or a class;
as long as these hold the very same objects, the evidence holds and need not be looked at again.
"""

from __future__ import annotations

import gc
import os
import types
from collections.abc import Mapping
from typing import Any

import torch

from gearcache.guards.access import _STEPS, Access, Scope
from gearcache.guards.evidence import EMPTY, Tree
from gearcache.guards.variant import StoredVariant

#: Kinds of checks for which every key of a dictionary counts, not only those that are asked for.
_WHOLE = {"keys", "length", "contains", "empty", "constant"}
_HOOKS = torch.utils.hooks.RemovableHandle
#: Of a module, where its attributes are looked for after its own dictionary and its class.
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")
_PLAIN_KEYS = (str, int, bytes)
_ABSENT = object()


class WatchedFacts:
    """Containers and the keys in them that matter, each once, with words for where they are."""

    def __init__(self) -> None:
        self._scope = Scope({}, {})
        self._alive: list[Any] = []
        self._met: set[tuple[int, str, Any]] = set()
        self._members: dict[tuple[type, str], Any] = {}
        #: By identity: a dictionary or class, the keys that matter (None: all of them), and what it belongs to.
        self.dicts: dict[int, tuple[Any, dict[Any, None] | None, str]] = {}
        self.lists: dict[int, list[Any]] = {}
        self.sets: dict[int, Any] = {}
        self.cells: dict[int, types.CellType] = {}
        #: By identities: an object, and the descriptor of one of its slots.
        self.slots: dict[tuple[int, int], tuple[Any, types.MemberDescriptorType]] = {}
        self.tensors: dict[int, torch.Tensor] = {}

    def collect(self, variant: StoredVariant, scope: Scope) -> dict[str, torch.Tensor]:
        """Add all that a variant rests on, whose evidence holds; returns the tensors that its graphs are bound to."""
        self._scope = scope
        try:
            self._add_evidence(variant.evidence)
            bound: dict[str, torch.Tensor] = {name: self._add_path(path) for name, path in variant.attributes.items()}
        finally:  # nothing of the call is kept
            self._scope = Scope({}, {})
            self._met.clear()
            self._alive.clear()
        self.tensors |= {id(tensor): tensor for tensor in bound.values()}
        return bound

    def include(self, other: WatchedFacts) -> None:
        """Add what another collection holds."""
        for holder, keys, owner in other.dicts.values():
            if keys is None:
                self._add_whole(holder, owner)
            for key in keys or ():
                self._add_key(holder, key, owner)
        for name in ("lists", "sets", "cells", "slots", "tensors"):
            getattr(self, name).update(getattr(other, name))

    def _add_evidence(self, tree: Tree) -> None:
        """Add all that the paths of an evidence tree go through; its checks hold now."""
        nodes, roots = tree
        empty = nodes.index(EMPTY) if EMPTY in nodes else None
        has_hooks = False

        def walk(value: Any, number: int) -> None:
            nonlocal has_hooks
            checks, children = nodes[number]
            for kind, expected in checks:
                self._add_check(value, kind, expected)
            for step, argument, child in children:
                inner = getattr(value, argument) if step == "attr" else _STEPS[step](value, argument)
                self._add_step(value, step, argument)
                if child == empty:
                    has_hooks = True
                else:
                    walk(inner, child)

        for kind, name, number in roots:
            walk(self._root(Access((kind, name))), number)
        if has_hooks:  # of all modules at once: every registration takes a number
            self._add_key(_HOOKS, "next_id", "hooks")

    def _add_path(self, access: Access) -> Any:
        """Add all that one path goes through; returns what it leads to."""
        value = self._root(Access(access.root))
        for step, argument in access.steps:
            self._add_step(value, step, argument)
            value = _STEPS[step](value, argument)
        return value

    def _root(self, access: Access) -> Any:
        kind, name = access.root
        value = access.resolve_root(self._scope)
        if kind == "global":
            self._add_global(name)
        elif kind == "closure":
            cell = self._scope.closure[name]
            self.cells[id(cell)] = cell
        elif kind == "environment":
            environment: Any = os.environ
            self._add_key(environment._data, environment.encodekey(name), "the environment")
        return value

    def _add_global(self, name: str) -> None:
        namespace: Mapping[str, Any] = self._scope.module_globals
        self._add_key(namespace, name, "globals")
        if name not in namespace:
            self._add_key(vars(__import__("builtins")), name, "builtins")

    def _add_check(self, value: Any, kind: str, expected: Any) -> None:
        if isinstance(value, types.MappingProxyType):
            value = next(iter(gc.get_referents(value)))
        if isinstance(value, dict):
            if kind == "lacks" and type(expected) in _PLAIN_KEYS:
                self._add_key(value, expected, "a dictionary")
            elif kind in _WHOLE or kind == "lacks":
                self._add_whole(value, "a dictionary")
        if kind == "constant":
            self._add_content(value)
        elif isinstance(value, list):
            self._add_list(value)
        elif isinstance(value, (set, frozenset)):
            self._add_set(value)
        elif kind in ("has_attr", "no_attr"):
            self._add_attribute(value, str(expected))

    def _add_content(self, value: Any) -> None:
        """Watch a container that was compared as a whole, and those in it."""
        if isinstance(value, (list, tuple)):
            if isinstance(value, list):
                self._add_list(value)
            for item in value:
                self._add_content(item)
        elif isinstance(value, dict):
            self._add_whole(value, "a dictionary")
            for item in value.values():
                self._add_content(item)
        elif isinstance(value, set):
            self._add_set(value)

    def _add_step(self, value: Any, step: str, argument: Any) -> None:
        try:
            met = (id(value), step, argument)
            if met in self._met:
                return
            self._met.add(met)
            self._alive.append(value)  # or another object might get its address
        except TypeError:  # a key without a hash
            pass
        if isinstance(value, types.MappingProxyType):  # of a class, which holds the dictionary itself
            value = next(iter(gc.get_referents(value)))
        if step == "attr":
            self._add_attribute(value, argument)
        elif step == "member":
            self._add_member(value, argument)
        elif isinstance(value, dict):
            is_keyed = step in ("item", "dict_item") and type(argument) in _PLAIN_KEYS
            if is_keyed:
                self._add_key(value, argument, "a dictionary")
            elif step != "type":
                self._add_whole(value, "a dictionary")
        elif isinstance(value, list) and step != "type":
            self._add_list(value)

    def _add_attribute(self, value: Any, name: str) -> None:
        if isinstance(value, type):
            self._add_member(value, name)
            return
        if isinstance(value, types.ModuleType):
            self._add_key(vars(value), name, value.__name__)
            return
        if name in ("__dict__", "__class__") or isinstance(value, torch.Tensor):
            return
        own = _instance_dictionary(value)
        if own is not None:
            self._add_key(own, name, type(value).__name__)
            if name in own:
                return
        member = self._add_member(type(value), name)
        if type(member) is types.MemberDescriptorType:
            self.slots[id(value), id(member)] = (value, member)
        if member is not _ABSENT or own is None or not isinstance(value, torch.nn.Module):
            return
        for part in _MODULE_PARTS:
            held = own.get(part)
            if isinstance(held, dict):
                self._add_key(held, name, type(value).__name__)
                if name in held:
                    return

    def _add_member(self, cls: type, name: str) -> Any:
        """Watch where a class finds a member; returns the member as it stands in the class."""
        if (cls, name) in self._members:
            return self._members[cls, name]
        found: Any = _ABSENT
        for base in cls.__mro__:
            self._add_key(base, name, base.__name__)
            if name in base.__dict__:
                found = base.__dict__[name]
                break
        self._members[cls, name] = found
        return found

    def _add_key(self, holder: Any, key: Any, owner: str) -> None:
        kept = self.dicts.get(id(holder))
        if kept is None:
            self.dicts[id(holder)] = (holder, {key: None}, owner)
        elif kept[1] is not None:
            kept[1][key] = None

    def _add_whole(self, holder: Any, owner: str) -> None:
        self.dicts[id(holder)] = (holder, None, owner)

    def _add_list(self, value: list[Any]) -> None:
        self.lists[id(value)] = value

    def _add_set(self, value: Any) -> None:
        if type(value) is set and all(type(item) in _PLAIN_KEYS for item in value):
            self.sets[id(value)] = value


def _instance_dictionary(value: Any) -> dict[str, Any] | None:
    """Return where an object keeps its attributes, past whatever its class makes of `__dict__`."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None
