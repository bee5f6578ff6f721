"""Report the classes that a trace meets and calls, and its tests of types; refuse operators that run a user's method.

Dynamo calls methods by which classes and enum members answer operators, and what they read is not noted. Those of enum
members that read nothing but the member are compared with their class. Left of a tensor and as an index, Dynamo takes
the plain value of a number of a user's class.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import enum
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._dynamo.variables import object_protocol
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable
from torch._library.fake_class_registry import FakeScriptObject

from gearcache.ge_cache.private_torch.nodes import argument_of
from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.guards.evidence.code import code_objects, is_users
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


@probes.at(UserDefinedClassVariable, "__init__")
def met_class(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Note a class; refuse one that answers branches, loops or reads of attributes by a method of the user's."""
    original(self, *arguments, **keywords)
    trace.note("class", self.value, self.source, False)
    _check(trace, self, _EVERYWHERE)


@probes.at(UserDefinedObjectVariable, "__init__")
def met_object(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Note the class of an object that the trace sees or makes, and look at an enum member."""
    original(self, *arguments, **keywords)
    trace.note("class", self.value_type, self.cls_source, self.source is None)
    # Of the fields of a dataclass, Dynamo guards those that are read.
    fields = getattr(self.source, "base", None) if self.value_type is dataclasses.Field else None
    if getattr(fields, "member", None) == "__dataclass_fields__":
        trace.note("own keys", fields)
    value = vars(self).get("value")
    if isinstance(value, enum.Enum):
        _check_member(trace, value, _EVERYWHERE_OF_MEMBERS)


@probes.at(UserDefinedClassVariable, "call_function")
def called_class(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Note a class that the trace calls, and look at what an enum does with a value of no member."""
    cls = self.value
    if isinstance(cls, enum.EnumMeta):
        _check_member(trace, next(iter(cls), None), ("_missing_",))
    if is_users(type(cls).__call__):
        trace.refuse(f"it makes a `{name_of(cls)}`, whose metaclass has a `__call__`: a trace does not go there")
    if getattr(cls, "__del__", None) is not None:
        cause = f"it makes a `{name_of(cls)}`, whose `__del__` Python would call when the last reference is gone"
        trace.refuse(cause, at_once=True)  # before making an example, which would be deleted
    trace.note("class", cls, self.source, True)
    return original(self, *arguments, **keywords)


@probes.at(BuiltinVariable, "call_isinstance")
def asked_instance(trace: Any, original: Any, self: Any, tx: Any, arg: Any, isinstance_type_var: Any) -> Any:
    """Note the answer to `isinstance`."""
    _check_tests(trace, isinstance_type_var)
    if isinstance(arg, TensorVariable) and _asks_for_class(isinstance_type_var.as_python_constant()):
        _note_class(trace, arg, tx)
    result = original(self, tx, arg, isinstance_type_var)
    # From its own dictionary: for some classes `value` is computed from the variable's content, if that is constant.
    value = vars(arg.realize()).get("value", arg) if arg.source is not None else arg
    if type(value) is FakeScriptObject:  # it represents a process group, which has a check of its own
        return result
    classes = [*_classes(isinstance_type_var)]
    trace.note("type test", "instance", arg.python_type(), arg.source, value, classes, result.as_python_constant())
    return result


@probes.at(BuiltinVariable, "call_type")
def asked_type(trace: Any, original: Any, self: Any, tx: Any, obj: Any) -> Any:
    """Note the class of a tensor."""
    if isinstance(obj, TensorVariable):
        _note_class(trace, obj, tx)
    return original(self, tx, obj)


@probes.at(object_protocol, "generic_issubclass")
def asked_subclass(trace: Any, original: Any, tx: Any, derived: Any, cls: Any) -> Any:
    """Note the answer to `issubclass`."""
    _check_tests(trace, cls)
    result = original(tx, derived, cls)
    if result.is_python_constant():
        value = derived.get_real_python_backed_value()
        trace.note("type test", "subclass", value, derived.source, value, [*_classes(cls)], result.as_python_constant())
    return result


@probes.at(BuiltinVariable, "call_function")
def called_builtin(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Refuse a builtin of which a class is an operand, if the class answers it by a method of the user's."""
    methods = tuple(_methods_of(self.fn))
    for operand in args:
        _check(trace, operand, methods)
    if methods and len(args) == 2:
        _check_number(trace, methods[0], *(operand.realize() for operand in args))
    return original(self, tx, args, kwargs)


def _check_tests(trace: Any, classes: Any) -> None:
    """Refuse tests of types that read more than the class: by a metaclass of the user's, or for a protocol."""
    for cls, _ in _classes(classes):
        tests = (getattr(type(cls), "__instancecheck__", None), getattr(type(cls), "__subclasscheck__", None))
        if any(map(is_users, tests)) or getattr(cls, "_is_protocol", False):
            trace.refuse(
                f"it asks whether something is a `{name_of(cls)}`, a protocol, or a class whose metaclass has an "
                "`__instancecheck__` or `__subclasscheck__`: a trace notes nothing of what that reads",
                at_once=True,
            )


def _asks_for_class(classes: Any) -> bool:
    """Return whether a tensor, a parameter and a buffer may answer otherwise than each other."""
    return any(
        isinstance(cls, type) and issubclass(cls, torch.Tensor) and cls is not torch.Tensor
        for cls in (classes if isinstance(classes, tuple) else (classes,))
    )


def _note_class(trace: Any, tensor: Any, tx: Any) -> None:
    is_result = tensor.source is None
    source = argument_of(tensor, tx) if is_result else tensor.source
    if source is not None:
        trace.note("class of a tensor", source, is_result)


def _classes(variable: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the classes of a variable that may be a tuple of classes, each with its source."""
    variable = variable.realize()
    if isinstance(variable, TupleVariable):
        for item in variable.items:
            yield from _classes(item)
        return
    value = variable.as_python_constant()
    parts = typing.get_args(value) if typing.get_origin(value) in (types.UnionType, typing.Union) else None
    yield from ((part, None) for part in parts) if parts is not None else [(value, variable.source)]


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
