"""Refuse operators on classes, enum members and numbers that run methods of the user's.

Dynamo calls those of classes and members, and what they read is not noted. Those of enum members that read nothing but
the member are compared with their class. Left of a tensor and as an index, Dynamo takes the plain value of a number.
"""

from __future__ import annotations

import builtins
import dis
import enum
import types
from collections.abc import Iterable, Iterator
from typing import Any

from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.guards.evidence.code import code_objects
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
    int: ("__int__", "__index__", "__trunc__"),
    float: ("__float__", "__index__"),
    round: ("__round__",),
    range: ("__index__",),
}
#: What Dynamo asks of an enum member in other places than builtins.
_EVERYWHERE_OF_MEMBERS = (*_EVERYWHERE, "__eq__", "__hash__", "__contains__")
probes = Probes()


@probes.at(BuiltinVariable, "call_function")
def called_builtin(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Refuse a builtin of which a class is an operand, if the class answers it by a method of the user's."""
    methods = tuple(_methods_of(self.fn))
    for operand in args:
        _check(trace, operand, methods)
    if methods and len(args) == 2:
        _check_number(trace, methods[0], *(operand.realize() for operand in args))
    return original(self, tx, args, kwargs)


@probes.at(UserDefinedClassVariable, "__init__")
def met_class(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse a class that answers branches, loops or reads of attributes by a method of the user's."""
    original(self, *arguments, **keywords)
    _check(trace, self, _EVERYWHERE)


@probes.at(UserDefinedObjectVariable, "__init__")
def met_object(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Look at an enum member."""
    original(self, *arguments, **keywords)
    value = vars(self).get("value")
    if isinstance(value, enum.Enum):
        _check_member(trace, value, _EVERYWHERE_OF_MEMBERS)


@probes.at(UserDefinedClassVariable, "call_function")
def called_class(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Look at what an enum does with a value of no member."""
    if isinstance(self.value, enum.EnumMeta):
        _check_member(trace, next(iter(self.value), None), ("_missing_",))
    return original(self, tx, args, kwargs)


def _methods_of(function: Any) -> Iterator[str]:
    if function in _METHODS:
        yield from _METHODS[function]
    elif getattr(function, "__module__", "") in ("_operator", "operator"):
        name = function.__name__.strip("_")
        for each in dict.fromkeys((name.removeprefix("i"), name)):  # `iadd` falls back to `add`
            yield from (f"__{each}__", f"__r{each}__", f"__i{each}__")
        if name == "getitem":
            yield "__class_getitem__"


def _check(trace: Any, operand: Any, methods: Iterable[str]) -> None:
    operand = operand.realize()
    value = vars(operand).get("value")  # a read of the attribute would be noted as a use of a table
    if isinstance(value, enum.Enum):
        _check_member(trace, value, methods)
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


def _check_number(trace: Any, method: str, left: Any, right: Any) -> None:
    """Refuse a number of a user's class where Python calls a method of it, and Dynamo takes its plain value."""
    if isinstance(right, (TensorVariable, SymNodeVariable)):
        number = left
    elif method == "__getitem__":
        number, method = right, "__index__"
    else:
        return
    cls = type(vars(number).get("value"))
    if issubclass(cls, (int, float, complex)):
        holder = next((base for base in cls.__mro__ if method in vars(base)), object)
        if is_of_user(holder):
            trace.refuse(
                f"it uses a number of the class `{name_of(cls)}`, whose `{method}` a trace does not call: convert it, "
                "as in `float(x)`, or call a method of another name",
                at_once=True,
            )


def _check_member(trace: Any, member: Any, methods: Iterable[str]) -> None:
    """Refuse methods of the user's by which an enum answers, if they read more than the member."""
    cls = type(member)
    for method in methods:
        holder = next((base for base in cls.__mro__ if method in vars(base)), None)
        if holder is None or not is_of_user(holder):
            continue
        function = getattr(vars(holder)[method], "__func__", vars(holder)[method])
        is_pure = isinstance(function, types.FunctionType) and not _reads_globals(function)
        if not is_pure and not isinstance(function, types.WrapperDescriptorType):  # `__hash__ = Enum.__hash__`
            trace.refuse(
                f"it uses the enum `{name_of(cls)}`, whose `{method}` reads what no trace notes: let that read its "
                "member alone, or give it another name and call it",
                at_once=True,
            )


def _reads_globals(function: types.FunctionType) -> bool:
    """Whether a function reads anything but its arguments and builtins, such as a global or the cell of a closure."""
    if {*function.__code__.co_freevars} - {"__class__"} or function.__defaults__ or function.__kwdefaults__:
        return True
    names = {
        instruction.argval
        for code in code_objects(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME")
    }
    return any(name in function.__globals__ or not hasattr(builtins, name) for name in names)
