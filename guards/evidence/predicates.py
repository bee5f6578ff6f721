"""The predicates of checks on one value: what each kind reads, and whether it equals the expected data."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from gearcache.guards.access import own_attributes
from gearcache.guards.evidence.code import function_plain
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.definition import definition
from gearcache.guards.evidence.identity import described
from gearcache.guards.evidence.names import a_type, name_of
from gearcache.guards.evidence.tensor_facts import is_tensor, reads
from gearcache.guards.keys import asked_key, has_key, is_asked


def _constant(value: Any) -> Any:
    try:
        return to_plain(value)
    except NotConstant as error:
        return ["other", str(error)]


def named(value: Any) -> str:
    """Return a name that includes the type of the value: a function may have copied the name of what it wraps."""
    is_its_own = isinstance(value, (type, types.ModuleType))
    return name_of(value) if is_its_own else f"{name_of(value)} ({name_of(type(value))})"


def _keys(value: Any) -> Any:
    return [_constant(key) for key in value]


def _contains(value: Any, key: Any) -> bool:
    if type(key) is str and type(value) is dict:
        return key in value
    if is_asked(key):
        return has_key(value, asked_key(key))
    return any(_constant(item) == key for item in value)


def _process_group(value: Any) -> Any:
    """Return name and ranks of a group: graphs contain the name, and the ranks identify its members."""
    distributed = torch.distributed
    if not distributed.is_available() or not isinstance(value, distributed.ProcessGroup):
        raise TypeError(f"{a_type(value)} is not a process group")
    try:
        return [value.group_name, list(distributed.get_process_group_ranks(value))]
    except RuntimeError as error:
        raise LookupError(str(error)) from error


#: kind -> function(value) giving the plain data that must equal `expected`
OBSERVERS: dict[str, Callable[[Any], Any]] = {
    "type": lambda value: name_of(type(value)),
    "constant": _constant,
    "length": len,
    "keys": _keys,
    "not_none": lambda value: value is not None,
    "name": named,
    "function": function_plain,
    "definition": definition,
    "order": lambda value: [_constant(item) for item in value],
    "reached": lambda value: described(value, name_of(value)),
    "empty": lambda value: not value,
    "process_group": _process_group,
    "bases": lambda value: [name_of(base) for base in value.__mro__],
}

PREDICATES: dict[str, Callable[[Any, Any], bool]] = {
    "has_attr": lambda value, name: hasattr(value, name),
    "no_attr": lambda value, name: not hasattr(value, name),
    "not_own": lambda value, name: name not in (own_attributes(value) or ()),
    "contains": _contains,
    "lacks": lambda value, key: not _contains(value, key),
    "tensor": is_tensor,
    "reads": reads,
}


def holds(kind: str, value: Any, expected: Any) -> bool:
    """Return whether a check holds for a value, regardless of other values; not for `classes` and `RELATIONS`."""
    predicate = PREDICATES.get(kind)
    if predicate is not None:
        return predicate(value, expected)
    if kind in ("type", "name"):
        expected = expected.partition("#")[0]
    return bool(OBSERVERS[kind](value) == expected)
