"""Refuse operators on classes that run methods of the user's: Dynamo calls them, and what they read is not noted."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable

from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.guards.evidence.members import is_of_user
from gearcache.guards.evidence.names import name_of

#: What Dynamo asks of a class in other places than builtins: branches, loops, attributes.
_EVERYWHERE = ("__bool__", "__len__", "__iter__", "__getattribute__")
_ITERATING = (iter, list, tuple, set, frozenset, dict, sum, any, all, sorted, min, max, enumerate, zip, map, filter)
#: Builtins whose method has another name, as far as it is not of `_EVERYWHERE`.
_METHODS: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys(_ITERATING, ("__getitem__",)),
    str: ("__str__", "__repr__"),
    repr: ("__repr__",),
    format: ("__format__", "__str__", "__repr__"),
    hash: ("__hash__",),
}
probes = Probes()


@probes.at(BuiltinVariable, "call_function")
def called_builtin(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Refuse a builtin of which a class is an operand, if the class answers it by a method of the user's."""
    for operand in args:
        _check(trace, operand, _methods_of(self.fn))
    return original(self, tx, args, kwargs)


@probes.at(UserDefinedClassVariable, "__init__")
def met_class(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse a class that answers branches, loops or reads of attributes by a method of the user's."""
    original(self, *arguments, **keywords)
    _check(trace, self, _EVERYWHERE)


def _methods_of(function: Any) -> Iterator[str]:
    if function in _METHODS:
        yield from _METHODS[function]
    elif getattr(function, "__module__", "") in ("_operator", "operator"):
        name = function.__name__.strip("_")
        for each in {name, name.removeprefix("i")}:  # `iadd` falls back to `add`
            yield from (f"__{each}__", f"__r{each}__", f"__i{each}__")
        if name == "getitem":
            yield "__class_getitem__"


def _check(trace: Any, operand: Any, methods: Iterable[str]) -> None:
    operand = operand.realize()
    if not isinstance(operand, UserDefinedClassVariable):
        return
    cls = operand.value
    for method in methods:
        holders = cls.__mro__ if method == "__class_getitem__" else type(cls).__mro__
        holder = next((base for base in holders if method in vars(base)), None)
        if holder is None:
            continue
        is_of_c = isinstance(vars(holder)[method], types.WrapperDescriptorType)  # as metaclasses of pybind11 have
        if not is_of_c and is_of_user(holder):
            trace.refuse(
                f"it uses the class `{name_of(cls)}`, for which `{method}` of `{name_of(holder)}` answers operators or "
                "branches: a trace notes nothing of what that reads; use an object, or a method of another name",
                at_once=True,
            )
