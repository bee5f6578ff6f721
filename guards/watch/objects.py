"""The objects that one watch is over, each once: containers and their relevant keys, classes, functions, slots, cells.

Each is added to the watch before anything in it is read. What is read afterwards is thus what is watched, unless the
watch no longer holds: no other thread can exchange an object unseen.
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Iterable
from typing import Any

import torch

from gearcache.guards.access import MODULE_PARTS, own_attributes
from gearcache.guards.evidence.names import a_type
from gearcache.guards.watch.questions import Questions, of_settings, text_of
from gearcache.guards.watch.watch import Watch, new_watch

#: Slots that cannot be assigned.
_FIXED_SLOTS = {
    *((types.FunctionType, name) for name in ("__closure__", "__globals__", "__builtins__")),
    *((types.MethodType, name) for name in ("__func__", "__self__")),
    *((property, name) for name in ("fget", "fset", "fdel")),
}
_ABSENT = object()
#: `Py_TPFLAGS_HEAPTYPE`: objects of other classes cannot get another class.
_HEAP_TYPE = 1 << 9
#: A dictionary or class, its keys that are watched (a dictionary; a frozenset; None for all), and its owner in words.
Holder = tuple[Any, Any, str]


class WatchedObjects:
    """Objects under one watch, with texts for their places."""

    def __init__(self) -> None:
        self._watch: Watch = new_watch()
        #: Whether nothing changed since it was added; called by the dispatch.
        self.holds = self._watch.holds
        self._members: dict[tuple[type, str], Any] = {}
        #: In the order of their numbers.
        self._holders: list[Holder] = []
        #: The number of a dictionary or class, by identity.
        self._numbers: dict[int, int] = {}
        #: Sets of names that are watched of a class.
        self._named: set[tuple[int, frozenset[str]]] = set()
        #: For each kind, in the order of the numbers: the objects, by identity.
        self._objects: dict[str, dict[Any, Any]] = collections.defaultdict(dict)

    def include(self, other: WatchedObjects) -> None:
        """Watch the objects of another collection too, in the state that it has noted; its watch holds."""
        for number, (holder, keys, owner) in enumerate(other._holders):
            if not self._covers(holder, keys):
                self._watch.copy(other._watch, "dictionary", number)
                if isinstance(keys, frozenset):
                    self._named.add((id(holder), keys))
                else:
                    self._numbers.setdefault(id(holder), len(self._holders))
                self._holders.append((holder, keys, owner))
        for kind, objects in other._objects.items():
            for number, (key, value) in enumerate(objects.items()):
                if key not in self._objects[kind]:
                    self._objects[kind][key] = value
                    self._watch.copy(other._watch, kind, number)

    def change(self) -> str | None:
        """Return a text that names the first change; None where nothing changed."""
        first_change = self._watch.changed()
        if first_change is None:
            return None
        kind, number = first_change
        if kind == "dictionary" and number >= 0:
            holder, keys, owner = self._holders[number]
            if isinstance(holder, type):
                return f"the class {holder.__qualname__}"
            keys_text = "its keys" if keys is None else ", ".join(str(key) for key in list(keys)[:4])
            return f"{owner} ({keys_text})"
        if number < 0:
            return f"a {kind} that the trace read"
        value = list(self._objects[kind].values())[number]
        texts = {
            "class": lambda: f"the class {value.__qualname__}",
            "function": lambda: f"the function {value.__qualname__}",
            "question": lambda: text_of(value),
            "tensor": lambda: f"the memory of a weight of shape {tuple(value.shape)}",
            "object": lambda: f"the class or the `__dict__` of an object that is {a_type(value)} now",
        }
        return texts[kind]() if kind in texts else f"a {kind} that the trace read"

    def _covers(self, holder: Any, keys: Any) -> bool:
        if isinstance(keys, frozenset):
            return (id(holder), keys) in self._named
        if id(holder) not in self._numbers:
            return False
        own_keys = self._holders[self._numbers[id(holder)]][1]
        return own_keys is None or (keys is not None and keys.keys() <= own_keys.keys())

    def _add(self, kind: str, value: Any) -> None:
        if id(value) not in self._objects[kind]:
            self._watch.add(kind, value)
            self._objects[kind][id(value)] = value

    def _add_named(self, cls: type, names: frozenset[str]) -> None:
        if (id(cls), names) not in self._named:
            self._watch.add_keys(cls, names)
            self._named.add((id(cls), names))
            self._holders.append((cls, names, cls.__name__))

    def add_object(self, value: Any) -> None:
        """Watch the class of an object, and its dictionary as a whole: a program may assign both."""
        if type(value).__flags__ & _HEAP_TYPE and not isinstance(value, (type, torch.Tensor)):
            self._add("object", value)

    def add_function(self, value: Any) -> None:
        """Watch the code and the defaults of a function, or of the function in a descriptor."""
        for inner in (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),):
            if isinstance(inner, types.FunctionType):
                self._add("function", inner)
                if inner.__kwdefaults__ is not None:
                    self._add_container(inner.__kwdefaults__)

    def _add_container(self, value: Any) -> None:
        """Watch the content of a container, but not what is inside its items."""
        value = _plain(value)
        if isinstance(value, (dict, type)):
            self._add_keys(value, None, "a dictionary")
            # `move_to_end` writes nothing. The hooks of a module are mostly empty, and cost no comparison.
            if isinstance(value, dict) and len(value) > 1 and _iterates_as(value, collections.OrderedDict):
                self._add("collection", value)
        elif isinstance(value, list):
            self._add("list", value)
        elif any(_iterates_as(value, kind) for kind in (set, collections.deque)):
            self._add("collection", value)

    def add_content(self, value: Any) -> None:
        """Watch a container that was compared as a whole, and the containers in it."""
        if isinstance(value, type) or not isinstance(value, (list, tuple, dict, set, types.MappingProxyType)):
            return
        self._add_container(value)
        for item in value.values() if isinstance(value, (dict, types.MappingProxyType)) else value:
            self.add_content(item)

    def _add_items(self, value: Any, keys: Iterable[Any]) -> None:
        """Watch some keys of a dictionary; for anything else the whole container."""
        holder = _plain(value)
        if isinstance(holder, dict):
            self._add_keys(holder, keys, "a dictionary")
        else:
            self._add_container(holder)

    def add_attributes(self, value: Any, names: Iterable[str]) -> None:
        if isinstance(value, type):
            for name in names:
                self._add_member(value, name)
        elif isinstance(value, types.CellType):
            self._add("cell", value)
        else:
            if isinstance(value, types.FunctionType):
                self.add_function(value)
            self.add_object(value)
            attributes = own_attributes(value)
            if attributes is not None:
                self._add_keys(attributes, names, type(value).__name__)
            missing = names if attributes is None else [name for name in names if name not in attributes]
            self._ask(of_settings(value, missing))
            if not isinstance(value, (torch.Tensor, types.ModuleType)):
                for name in missing:
                    self._add_inherited(value, name, attributes)

    def _add_inherited(self, value: Any, name: str, attributes: dict[str, Any] | None) -> None:
        """Watch an attribute that is not in an object's own dictionary."""
        if name in ("__dict__", "__class__"):
            return
        member = self._add_member(type(value), name)
        if type(member) is types.MemberDescriptorType and (type(value), name) not in _FIXED_SLOTS:
            slots = self._objects["slot"]
            if (id(value), id(member)) not in slots:
                self._watch.add("slot", value, member)
                slots[id(value), id(member)] = value, member
        if member is not _ABSENT or attributes is None or not isinstance(value, torch.nn.Module):
            return
        for part in MODULE_PARTS:
            part_members = attributes.get(part)
            if isinstance(part_members, dict):
                self._add_keys(part_members, (name,), type(value).__name__)
                if name in part_members:
                    return

    def _add_member(self, cls: type, name: str) -> Any:
        """Watch where a class finds a member; returns the member as stored in the class."""
        if (cls, name) in self._members:
            return self._members[cls, name]
        member: Any = _ABSENT
        for base in cls.__mro__:
            self._add_keys(base, (name,), base.__name__)
            if name in base.__dict__:
                member = base.__dict__[name]
                break
        self._members[cls, name] = member
        return member

    def _add_keys(self, holder: Any, keys: Iterable[Any] | None, owner: str) -> None:
        """Watch some keys of a dictionary or class; None for all of them."""
        number = self._numbers.get(id(holder))
        if number is None:
            self._numbers[id(holder)] = self._watch.add_keys(holder, keys)
            self._holders.append((holder, None if keys is None else dict.fromkeys(keys), owner))
            return
        _, known, _ = self._holders[number]
        if keys is None and known is not None:
            self._watch.add_keys(holder, None, number)
            self._holders[number] = holder, None, owner
        elif known is not None:
            new_keys = [key for key in keys or () if key not in known]
            if new_keys:
                self._watch.add_keys(holder, new_keys, number)
                known.update(dict.fromkeys(new_keys))

    def _ask(self, questions: Questions) -> None:
        for key, question in questions.items():
            if key not in self._objects["question"]:
                self._watch.add("question", question)
                self._objects["question"][key] = key


def _plain(value: Any) -> Any:
    """Return the dictionary behind a view of a class's dictionary."""
    return next(iter(gc.get_referents(value))) if type(value) is types.MappingProxyType else value


def _iterates_as(value: Any, kind: type) -> bool:
    """Return whether a value is of a kind, or of a class below that does not iterate by code of its own."""
    return isinstance(value, kind) and type(value).__iter__ is kind.__iter__  # type: ignore[attr-defined]
