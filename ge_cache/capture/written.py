"""Find what depends on the writes of a trace's frame: it may change at the next call, so it is read and checked anew.

Places are identified by the written objects, not by the paths to them: many paths may lead to one object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from gearcache.guards.access import _STEPS, MODULE_PARTS, Access, Scope
from gearcache.guards.evidence.checks import Check
from gearcache.guards.keys import asked_key, is_asked, unpacked
from gearcache.interrupts import raise_interrupt


class Write(Struct, frozen=True):
    """An attribute of an object that the frame assigns or deletes; with `attribute` None, a container's content.

    `source` is Dynamo's. No frame writes a global, or an attribute of a class or a module (`probes/writes.py`).
    """

    source: Any
    owner: Any
    attribute: str | None


class Written:
    """Decides which paths and checks of a trace depend on the frame's writes. `scope` is that of the traced call."""

    def __init__(self, writes: Iterable[Write], scope: Scope) -> None:
        self._scope = scope
        #: Written keys and attributes by the identity of their holder; None stands for all.
        self._names: dict[int, set[Any]] = {}
        #: The objects in `_names`, kept alive so that their identities stay unique.
        self._holders: list[Any] = []
        for write in writes:
            self._note(write.owner, write.attribute)
            if write.attribute is not None:
                for dictionary in _dictionaries(write.owner):
                    self._note(dictionary, write.attribute)

    def _note(self, holder: Any, name: str | None) -> None:
        self._names.setdefault(id(holder), set()).add(name)
        self._holders.append(holder)

    def leads_to(self, access: Access) -> bool:
        """Return whether a path passes through a written object."""
        return bool(self._names) and self._walk(access)[0]

    def affects(self, check: Check) -> bool:
        """Return whether the frame's writes may make a check fail at the next call."""
        if not self._names:
            return False
        is_behind, value = self._walk(check.access)
        if is_behind:
            return True
        if check.kind in ("has_attr", "no_attr", "contains", "lacks"):
            holders = (value, *_dictionaries(value))
            if not is_asked(check.expected):  # a class, or an enum member
                return any(id(holder) in self._names for holder in holders)
            return any(self._writes(holder, asked_key(check.expected)) for holder in holders)
        # Any write may add or remove a key.
        return check.kind in ("keys", "length", "empty") and id(value) in self._names

    def _writes(self, holder: Any, name: Any) -> bool:
        names = self._names.get(id(holder), ())
        return name in names or None in names

    def _walk(self, access: Access) -> tuple[bool, Any]:
        """Return whether a path passes through a written object, and the value at its end."""
        kind, name = access.root
        if kind == "closure" and self._writes(self._scope.closure.get(name), "cell_contents"):
            return True, None
        try:
            value = holder = access.resolve_root(self._scope)
            for step, argument in access.steps:
                if step == "call":
                    return False, None
                if step == "type":
                    value = holder = type(value)
                    continue
                name = unpacked(argument) if step in ("key_item", "dict_key_item") else argument
                if self._writes(value, name) or self._writes(holder, name):
                    return True, None
                target = _STEPS[step](value, argument)
                # A write to an object is noted with the object, not with its dictionary.
                holder = value if (step, argument) == ("attr", "__dict__") else target
                value = target
        except Exception as error:
            raise_interrupt(error)
            return False, None
        return None in self._names.get(id(value), ()), value


def _dictionaries(value: Any) -> list[Any]:
    """Return the dictionaries in which a module of `nn` keeps its attributes."""
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict or "_parameters" not in attributes:
        return []  # their attributes are reached only through the object
    return [attributes, *(attributes[name] for name in MODULE_PARTS if name in attributes)]
