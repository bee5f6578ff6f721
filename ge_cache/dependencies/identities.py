"""Turn a trace's assumptions about identity (one object or two) into checks.

Dynamo has one variable for an object that it finds at several paths, and guards that they stay one object. It does not
guard that different objects stay different, although the trace depends on it: `x is y` is folded to False, and a write
to one list does not show in the other. This matters for objects that are compared, looked up by identity, or written;
all others may be one object or several.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import is_given
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check, observe

#: Where modules store their parts: no code passes these dictionaries on.
_INNER = ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set", "__dict__", "__mro__", "__defaults__")
_CONSTANTS = (
    *(bool, int, float, complex, str, bytes, type, enum.Enum, range, slice),
    *(types.ModuleType, types.BuiltinFunctionType, types.CodeType, torch.dtype, torch.device, torch.layout),
    *(torch.memory_format, torch.Size, types.NoneType, types.EllipsisType, types.NotImplementedType),
)
#: No object has an address below this one.
_LEAST_ID = 1 << 16
_IDENTITY_HASHES: tuple[Any, ...] = (object.__hash__, torch.Tensor.__hash__, torch.nn.Module.__hash__)


class Identities(Struct):
    """Notes how Dynamo uses the identity of objects that have a source."""

    method: str
    #: Source, object, and whether the frame writes it.
    _tracked_objects: list[tuple[Any, Any, bool]] = field(default_factory=list)
    _comparisons: dict[tuple[Any, Any], None] = field(default_factory=dict)
    _hashed_sources: dict[Any, None] = field(default_factory=dict)
    _aliases: dict[tuple[Any, Any], None] = field(default_factory=dict)
    _descriptors: dict[Any, None] = field(default_factory=dict)
    _numbers_looked_up: bool = False

    def compared(self, left: Any, right: Any) -> None:
        """Note that two objects are compared by identity."""
        if left != right and is_given(left) and is_given(right):
            self._comparisons[left, right] = None

    def hashed(self, source: Any) -> None:
        """Note that an object is looked up, or used as a key."""
        if is_given(source):
            self._hashed_sources[source] = None

    def number_looked_up(self) -> None:
        """Note that a result of `id` is looked up, or used as a key."""
        self._numbers_looked_up = True

    def met_again(self, source: Any, first: Any) -> None:
        """Note that an object of a known path is found at another one."""
        if source != first and is_given(source) and is_given(first):
            self._aliases[source, first] = None

    def met_descriptor(self, source: Any) -> None:
        """Note a method of a C class that is used as an object."""
        if is_given(source):
            self._descriptors[source] = None

    def at_the_end(self, tracked: Iterable[tuple[Any, Any, bool]]) -> None:
        """Note the objects that Dynamo tracks at the end of the trace."""
        self._tracked_objects = [entry for entry in tracked if is_given(entry[0])]

    def checks(self, access: Callable[[Any], Access], value: Callable[[Access], Any]) -> list[Check]:
        """Return the checks of the objects. `UncacheableGuard` for an object that matters and has no path."""
        if self._numbers_looked_up:
            self._refuse_kept_numbers()
        checks = [
            Check("same", access(source), access(first).to_plain())
            for source, first in self._aliases
            if not isinstance(value(access(source)), _CONSTANTS)
        ]
        checks += [observe("name", path, value(path)) for path in self._paths_of_descriptors(access)]
        apart: dict[Access, set[Access]] = {}
        for left, right in self._comparisons:
            first, second = access(left), access(right)
            left_object, right_object = value(first), value(second)
            if isinstance(left_object, _CONSTANTS) or isinstance(right_object, _CONSTANTS):
                continue
            if left_object is right_object:
                checks.append(Check("same", first, second.to_plain()))
            elif _may_be_one(left_object, right_object):
                apart.setdefault(first, set()).add(second)
        checks += _one_or_apart([(path, value(path)) for path in map(access, self._hashed_sources)])
        checks += [Check("distinct", path, [0, [item.to_plain() for item in rest]]) for path, rest in apart.items()]
        written_classes = {type(item) for _, item, is_written in self._tracked_objects if is_written}
        members = [entry for entry in self._tracked_objects if type(entry[1]) in written_classes]
        paths = [(access(source), item, is_written) for source, item, is_written in members]
        return checks + _apart([entry for entry in paths if not _is_inner(entry[0])])

    def forget(self, is_internal: Callable[[Any], bool]) -> None:
        """Leave out descriptors that are internal to the standard library: no path leads to them."""
        self._descriptors = {source: None for source in self._descriptors if not is_internal(source)}

    def _paths_of_descriptors(self, access: Callable[[Any], Access]) -> list[Access]:
        """Return the paths of descriptors; below a class they are found by name, and the class is checked."""
        paths = [access(source) for source in self._descriptors]
        return [path for path in paths if all(kind != "type" for kind, _ in path.steps) and path.root[0] != "module"]

    def _refuse_kept_numbers(self) -> None:
        """Refuse to look up an `id` in containers from before the call: another call may find a different number."""
        for source, value, _ in self._tracked_objects:
            if isinstance(value, (dict, set)) and any(type(key) is int and key >= _LEAST_ID for key in value):
                raise CaptureError(self.method, f"it looks an `id` up in `{source.name}`, which holds such numbers")


def _one_or_apart(keys: list[tuple[Access, Any]]) -> list[Check]:
    """Return checks that keys compared by identity are one object at several paths, or different objects."""
    checks, objects, firsts = [], [], dict[int, Access]()
    for path, item in keys:
        if type(item).__hash__ not in _IDENTITY_HASHES:
            continue
        if isinstance(item, (*_CONSTANTS, types.FunctionType, types.MethodType)):
            continue
        first = firsts.setdefault(id(item), path)
        if first is path:
            objects.append((path, item, True))
        else:
            checks.append(Check("same", path, first.to_plain()))
    return checks + _apart(objects)


def _apart(objects: list[tuple[Access, Any, bool]]) -> list[Check]:
    """Return checks that marked objects differ from all other objects of their class."""
    checks = []
    for cls in dict.fromkeys(type(item) for _, item, _ in objects):
        marked = [path for path, item, is_marked in objects if type(item) is cls and is_marked]
        rest = [
            path for path, item, is_marked in objects if type(item) is cls and not is_marked and not _is_inner(path)
        ]
        if marked and len(marked) + len(rest) > 1:
            plain = [path.to_plain() for path in (*marked[1:], *rest)]
            checks.append(Check("distinct", marked[0], [len(marked) - 1, plain]))
    return checks


def _may_be_one(value: Any, other: Any) -> bool:
    """Return whether two values could be one object on another call: classes are checked, except among tensors."""
    return type(value) is type(other) or (isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor))


def _is_inner(path: Access) -> bool:
    _, name = path.steps[-1] if path.steps else ("", "")
    return isinstance(name, str) and (name in _INNER or name.endswith(("_hooks", "_hooks_with_kwargs")))
