"""Turn a trace's assumptions about identity (one object or two) into checks.

Dynamo has one variable for an object that it finds at several paths, and guards that they stay one object. It does not
guard that different objects stay different, although the trace depends on it: `x is y` is folded to False, and a write
to one list does not show in the other. This matters for objects that are compared, looked up by identity, or written;
all others may be one object or several.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import is_given, is_of_namedtuple
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.paths import Paths
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


def identity_checks(log: TraceLog, paths: Paths) -> list[Check]:
    """Return the checks of objects with a path that were compared, looked up by identity, met again, or written.

    `UncacheableGuard` for an object that matters and has no path.
    """
    tracked = [note for note in log.of("tracked") if is_given(note[0])]
    if log.of("number looked up"):
        _refuse_kept_numbers(log.method, tracked)
    checks = []
    for source, first in log.given("met again"):
        if source != first and is_given(first) and not isinstance(paths.value(paths.of(source)), _CONSTANTS):
            checks.append(Check("same", paths.of(source), paths.of(first).to_plain()))
    checks += [observe("name", path, paths.value(path)) for path in _paths_of_descriptors(log, paths)]
    apart: dict[Access, set[Access]] = {}
    for left, right in log.given("compared"):
        if left == right or not is_given(right):
            continue
        first, second = paths.of(left), paths.of(right)
        left_object, right_object = paths.value(first), paths.value(second)
        if isinstance(left_object, _CONSTANTS) or isinstance(right_object, _CONSTANTS):
            continue
        if left_object is right_object:
            checks.append(Check("same", first, second.to_plain()))
        elif _may_be_one(left_object, right_object):
            apart.setdefault(first, set()).add(second)
    keys = [paths.of(source) for (source,) in log.given("hashed")]
    checks += _one_or_apart([(path, paths.value(path)) for path in keys])
    checks += [Check("distinct", path, [0, [item.to_plain() for item in rest]]) for path, rest in apart.items()]
    written_classes = {type(item) for _, item, is_written in tracked if is_written}
    members = [entry for entry in tracked if type(entry[1]) in written_classes]
    entries = [(paths.of(source), item, is_written) for source, item, is_written in members]
    return checks + _apart([entry for entry in entries if not _is_inner(entry[0])])


def _paths_of_descriptors(log: TraceLog, paths: Paths) -> list[Access]:
    """Return the paths of descriptors; below a class they are found by name, and the class is checked.

    No path leads to those that are internal to the standard library.
    """
    sources = [source for (source,) in log.given("descriptor") if not is_of_namedtuple(source, paths.names)]
    accesses = map(paths.of, sources)
    return [path for path in accesses if all(kind != "type" for kind, _ in path.steps) and path.root[0] != "module"]


def _refuse_kept_numbers(method: str, tracked: Iterable[tuple[Any, ...]]) -> None:
    """Refuse to look up an `id` in containers from before the call: another call may find a different number."""
    for source, value, _ in tracked:
        if isinstance(value, (dict, set)) and any(type(key) is int and key >= _LEAST_ID for key in value):
            raise CaptureError(method, f"it looks an `id` up in `{source.name}`, which holds such numbers")


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
