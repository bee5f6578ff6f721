"""Report the classes that a trace meets and calls, and its tests of types."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.variables import object_protocol
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable
from torch._library.fake_class_registry import FakeScriptObject

from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.guards.evidence.code import is_users
from gearcache.guards.evidence.names import name_of

probes = Probes()


@probes.at(UserDefinedClassVariable, "__init__")
def met_class(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Note a class that the trace sees."""
    original(self, *arguments, **keywords)
    trace.note("class", self.value, self.source, False)


@probes.at(UserDefinedObjectVariable, "__init__")
def met_object(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Note the class of an object that the trace sees or makes."""
    original(self, *arguments, **keywords)
    trace.note("class", self.value_type, self.cls_source, self.source is None)
    # Of the fields of a dataclass, Dynamo guards those that are read.
    fields = getattr(self.source, "base", None) if self.value_type is dataclasses.Field else None
    if getattr(fields, "member", None) == "__dataclass_fields__":
        trace.note("own keys", fields)


@probes.at(UserDefinedClassVariable, "call_function")
def called_class(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Note a class that the trace calls."""
    cls = self.value
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
    for cls, _ in _classes(isinstance_type_var):
        if isinstance(cls, type) and is_users(type(cls).__instancecheck__):
            trace.refuse(
                f"it asks whether something is a `{name_of(cls)}`, whose metaclass has an `__instancecheck__`: "
                "a trace notes nothing of what that reads",
                at_once=True,
            )
    if isinstance(arg, TensorVariable) and arg.source is not None:
        _note_tensor_test(trace, arg.source, isinstance_type_var.as_python_constant())
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
    if isinstance(obj, TensorVariable) and obj.source is not None:
        trace.note("class of a tensor", obj.source)
    return original(self, tx, obj)


@probes.at(object_protocol, "generic_issubclass")
def asked_subclass(trace: Any, original: Any, tx: Any, derived: Any, cls: Any) -> Any:
    """Note the answer to `issubclass`."""
    result = original(tx, derived, cls)
    if result.is_python_constant():
        value = derived.get_real_python_backed_value()
        trace.note("type test", "subclass", value, derived.source, value, [*_classes(cls)], result.as_python_constant())
    return result


def _note_tensor_test(trace: Any, source: Any, classes: Any) -> None:
    """Note an `isinstance` of a tensor, unless a tensor, a parameter and a buffer answer alike."""
    for cls in classes if isinstance(classes, tuple) else (classes,):
        if isinstance(cls, type) and issubclass(cls, torch.Tensor) and cls is not torch.Tensor:
            trace.note("class of a tensor", source)


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
