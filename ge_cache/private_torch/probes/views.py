"""Detect reads of a value that the trace wrote in another place.

Dynamo keeps a trace's writes with the object that is written. A read through that object sees the new value. A class
that is read through an instance or a subclass, and a global that is also an attribute of its module, are read as they
were before the trace.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.symbolic_convert import InstructionTranslator, InstructionTranslatorBase
from torch._dynamo.variables.misc import DeletedVariable, PythonModuleVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

from gearcache.errors import MethodRaises
from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.guards.access import MODULE_PARTS

probes = Probes()


class _Shown(Struct):
    """Classes and modules whose `__dict__` the trace uses, by id."""

    holders: dict[int, Any] = field(default_factory=dict)


@probes.at(UserDefinedObjectVariable, "lookup_class_mro_attr")
def read_class_of_object(trace: Any, original: Any, self: Any, name: str) -> Any:
    """Check an attribute that is read of the class of an object."""
    if not _effects().has_pending_mutation_of_attr(self, name) and name not in _instance_dict(self.value):
        _check(trace, type(self.value).__mro__, name)
    return original(self, name)


@probes.at(UserDefinedClassVariable, "lookup_cls_mro_attr")
def read_class(trace: Any, original: Any, self: Any, name: str) -> Any:
    """Check an attribute that is read of a class."""
    _check(trace, self.value.__mro__, name)
    return original(self, name)


@probes.at(UserDefinedClassVariable, "lookup_metaclass_attr")
def read_metaclass(trace: Any, original: Any, self: Any, name: str) -> Any:
    """Check an attribute that is read of a metaclass."""
    if name == "__dict__":
        _show(trace, self.value)
    _check(trace, type(self.value).__mro__, name)
    return original(self, name)


@probes.at(UserDefinedClassVariable, "call_obj_hasattr")
def asked_class(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Check an attribute that a class may have."""
    _check(trace, self.value.__mro__, name)
    return original(self, tx, name)


@probes.at(PythonModuleVariable, "call_obj_hasattr")
def asked_module(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Check an attribute that a module may have."""
    _check(trace, (self.value,), name)
    _check_module(trace, self.value, name)
    return original(self, tx, name)


@probes.at(PythonModuleVariable, "var_getattr")
def read_module(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Check an attribute that is read of a module."""
    if name == "__dict__":
        _show(trace, self.value)
    _check_module(trace, self.value, name)
    return original(self, tx, name)


@probes.at(SideEffects, "store_attr")
def wrote(trace: Any, original: Any, self: Any, item: Any, name: str, value: Any, *rest: Any, **keywords: Any) -> Any:
    """Check an attribute that is written or deleted."""
    if isinstance(value, DeletedVariable):
        if self.has_pending_mutation_of_attr(item, name):
            is_there = not isinstance(self.load_attr(item, name, deleted_ok=True), DeletedVariable)
        else:
            is_there = name in _attributes(getattr(item, "value", None))
        if not is_there:
            raise MethodRaises(trace.method, f"it deletes `{name}`, which is not there at this call")
    if id(getattr(item, "value", None)) in trace.state(_Shown).holders:
        _refuse_stale(trace, name, _describe(item.value))
    return original(self, item, name, value, *rest, **keywords)


@probes.at(InstructionTranslatorBase, "_load_global")
def read_global(trace: Any, original: Any, self: Any, instruction: Any) -> Any:
    """Check a global that is read."""
    if self.f_globals is self.output.global_scope:
        module = sys.modules.get(self.f_globals.get("__name__", ""))
        if module is not None and vars(module) is self.f_globals:
            _check(trace, (module,), instruction.argval)
    return original(self, instruction)


def _effects() -> Any:
    return InstructionTranslator.current_tx().output.side_effects


def _show(trace: Any, holder: Any) -> None:
    """Check all that was written to a class or module whose `__dict__` the trace uses."""
    trace.state(_Shown).holders[id(holder)] = holder
    variable = _effects().id_to_variable.get(id(holder))
    for name in _effects().store_attr_mutations.get(variable, ()):
        _refuse_stale(trace, name, _describe(holder))
    if isinstance(holder, types.ModuleType):
        for name in InstructionTranslator.current_tx().symbolic_globals:
            _check_module(trace, holder, name)


def _check(trace: Any, holders: Iterable[Any], name: str) -> None:
    pending = _effects()
    if not pending.store_attr_mutations:
        return
    for holder in holders:
        variable = pending.id_to_variable.get(id(holder))
        if variable is not None and name in pending.store_attr_mutations.get(variable, ()):
            _refuse_stale(trace, name, _describe(holder))


def _check_module(trace: Any, module: types.ModuleType, name: str) -> None:
    root = InstructionTranslator.current_tx()
    if vars(module) is root.output.global_scope and name in root.symbolic_globals:
        _refuse_stale(trace, name, f"globals of `{module.__name__}`")


def _refuse_stale(trace: Any, name: str, holder: str) -> None:
    """Refuse a read of a value that the trace wrote in another place: Dynamo would answer with the old value."""
    trace.refuse(
        f"it writes `{name}` of the {holder} and then reads it at another place (through an object or a subclass, "
        f"in a `__dict__`, as a global or as an attribute of its module), where Dynamo finds the old value; read "
        f"it where it is written, or keep what was written in a variable",
        at_once=True,
    )


def _describe(holder: Any) -> str:
    return f"{'class' if isinstance(holder, type) else 'module'} `{holder.__name__}`"


def _instance_dict(value: Any) -> Any:
    """Return the dictionary of an object, bypassing its class."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}


def _attributes(value: Any) -> set[str]:
    """Return the names of an object's attributes that can be deleted."""
    instance_dict = _instance_dict(value)
    names = {*instance_dict, *(name for part in MODULE_PARTS for name in instance_dict.get(part, ()))}
    slots = {name for base in type(value).__mro__ for name, member in vars(base).items() if _is_slot(member)}
    return names | {name for name in slots if hasattr(value, name)}


def _is_slot(value: Any) -> bool:
    return isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType, property))
