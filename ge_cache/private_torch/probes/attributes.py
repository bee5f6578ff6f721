"""Report attributes that a trace finds, or finds absent."""

from __future__ import annotations

import sys
import types
from typing import Any

from msgspec import Struct, field
from torch._dynamo.exc import ObservedAttributeError
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.functions import MemberDescriptorVariable
from torch._dynamo.variables.misc import PythonModuleVariable
from torch._dynamo.variables.tensor import NumpyNdarrayVariable, TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable
from torch.utils._config_module import ConfigModule

from gearcache.ge_cache.capture.source_paths import root_of
from gearcache.ge_cache.private_torch.probe import Probes, overriding
from gearcache.ge_cache.private_torch.renamed import name_here
from gearcache.guards.access import MODULE_PARTS, own_attributes
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.members import is_of_user
from gearcache.guards.evidence.names import name_of

#: Attributes of a tensor that make a tensor.
_TENSOR_ATTRIBUTES = ("T", "mT", "H", "mH", "real", "imag", "data")
probes = Probes()


class _Reads(Struct):
    """What a trace has read so far."""

    #: The class that has an attribute -> Dynamo's places of its attributes.
    places: dict[type, dict[Any, Any]] = field(default_factory=dict)


@probes.at(MemberDescriptorVariable, "tp_descr_get_impl")
def read_slot(trace: Any, original: Any, self: Any, tx: Any, obj: Any, owner: Any) -> Any:
    """Refuse a slot that is read by its descriptor, `Point.x.__get__(point)`, if the trace has written it."""
    name = self.descriptor.__name__
    if _is_written(obj, tx, name):
        cause = f"it reads the slot `{name}`, which it has written, by its descriptor: read it by its name"
        trace.refuse(cause, at_once=True)
    return original(self, tx, obj, owner)


@probes.at(UserDefinedClassVariable, "get_source_by_walking_mro")
def found_in_class(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Find the class that has an attribute of a class."""
    _separate_places(trace, self.value, tx, name)
    return original(self, tx, name)


@probes.at(UserDefinedObjectVariable, "get_source_by_walking_mro")
def found_in_class_of_object(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Find the class that has an attribute of an object."""
    _separate_places(trace, type(self.value), tx, name)
    return original(self, tx, name)


def _separate_places(trace: Any, cls: type, tx: Any, name: str) -> None:
    """Give each class places of its own.

    Dynamo keeps one place for each value and name. Equal numbers and texts are one object wherever they are written, so
    of two classes with `scale = 2.0` only the first would be compared: `torch.compile` misses it too (torch 2.13).
    """
    holder = next((base for base in cls.__mro__ if name in vars(base)), object)
    tx.output.mro_source_cache = trace.state(_Reads).places.setdefault(holder, {})


@probes.at_each(lambda: overriding(VariableTracker, "var_getattr"))
def read_attribute(trace: Any, original: Any, self: Any, tx: Any, name: Any, *rest: Any, **keywords: Any) -> Any:
    """Note an attribute that is read, or found absent."""
    trace.note("name", name)
    if _is_settings(self) and not _is_written(self, tx, name):
        return getattr(_as_module(self), name_here(VariableTracker, "var_getattr"))(tx, name)
    try:
        if _is_made(self, name):
            return _without_source(original, self, tx, name, *rest, **keywords)
        if self.source is None and isinstance(self, UserDefinedClassVariable) and isinstance(name, str):
            _note_member(trace, self.value, name)
        result = original(self, tx, name, *rest, **keywords)
        if self.source is not None and isinstance(name, str):
            _note_maker(trace, self, name)
            if may_be_caught(tx) and _is_of_argument(self.source, tx) and not _is_written(self, tx, name):
                trace.note("attribute", self.source, name, True)
        return result
    except ObservedAttributeError:
        if self.source is not None and not _is_written(self, tx, name):
            _note_attribute(trace, self.source, name, False)
        raise


@probes.at_each(lambda: overriding(VariableTracker, "call_obj_hasattr"))
def asked_for_attribute(trace: Any, original: Any, self: Any, tx: Any, name: Any, *rest: Any, **keywords: Any) -> Any:
    """Note the answer to `hasattr`."""
    trace.note("name", name)
    result = original(self, tx, name, *rest, **keywords)
    if isinstance(result, ConstantVariable) and self.source is not None and not _is_written(self, tx, name):
        _note_attribute(trace, self.source, name, bool(result.value))
    return result


def _is_written(variable: Any, tx: Any, name: str) -> bool:
    return bool(tx.output.side_effects.has_pending_mutation_of_attr(variable, name))


def _is_settings(variable: Any) -> bool:
    """Whether it is a module of torch's settings, of which Dynamo makes an object since torch 2.14."""
    return isinstance(variable, UserDefinedObjectVariable) and isinstance(variable.value, ConfigModule)


def _as_module(variable: Any) -> Any:
    """Return the module that settings are: a setting is a fact, and the context variable that keeps it is none.

    Functional collectives read one in every trace. No process can compare another one's context variables.
    """
    return PythonModuleVariable(variable.value, source=variable.source)


def _is_made(variable: Any, name: Any) -> bool:
    """Return whether each read of an attribute makes a new tensor: `x.real` is `x` itself where `x` is not complex."""
    if not isinstance(variable, TensorVariable) or isinstance(variable, NumpyNdarrayVariable):
        return False
    is_tensor = name in _TENSOR_ATTRIBUTES and variable.source is not None and variable.dtype is not None
    return is_tensor and (name != "real" or bool(variable.dtype.is_complex))


def _without_source(function: Any, variable: Any, *arguments: Any, **keywords: Any) -> Any:
    """Read an attribute as if the trace had made the tensor.

    Dynamo assumes that all reads of one path give one object, and reuses the first result (torch 2.13).
    """
    source, variable.source = variable.source, None
    try:
        return function(variable, *arguments, **keywords)
    finally:
        variable.source = source


def _note_attribute(trace: Any, source: Any, name: Any, present: bool) -> None:
    if isinstance(name, str):
        trace.note("attribute", source, name, present)


def _note_member(trace: Any, cls: type, name: str) -> None:
    """Note what is read of a class that has no place of its own, such as the owner that a descriptor is given.

    Dynamo guards nothing of it; what a class defines that a method makes objects of is compared by its content.
    """
    holder = next((base for base in cls.__mro__ if name in vars(base)), object)
    if not is_of_user(holder):
        return
    value = vars(holder)[name]
    if not (isinstance(value, type) or hasattr(type(value), "__get__") or _is_fixed_constant(value)):
        trace.refuse(
            f"it reads `{name}` of the class `{name_of(cls)}`, which it got from a descriptor or an object that it "
            "made: read it from an object of the class",
            at_once=True,
        )
    trace.note("class", cls, None, True)


def _is_fixed_constant(value: Any) -> bool:
    """Whether a value has a plain form, and cannot change."""
    try:
        to_plain(value)
        hash(value)  # a container is fixed if what it holds is
    except (NotConstant, TypeError):
        return False
    return True


def _note_maker(trace: Any, variable: Any, name: str) -> None:
    """Note the origin of an attribute that is neither in an object nor in its class."""
    if not isinstance(variable, (UserDefinedClassVariable, UserDefinedObjectVariable)):
        return
    value: Any = variable.value
    holders = value.__mro__ if isinstance(value, type) else type(value).__mro__
    if any(name in vars(base) for base in holders):
        return
    if isinstance(value, type):
        _check_metaclass(trace, value, name)
    elif getattr(type(value), "__getattribute__", None) is object.__getattribute__ and hasattr(
        type(value), "__getattr__"
    ):
        attributes = own_attributes(value) or {}
        if name not in attributes and not any(name in attributes.get(part, ()) for part in MODULE_PARTS):
            trace.note("made attribute", variable.source, name)


def _check_metaclass(trace: Any, cls: type, name: str) -> None:
    """Refuse an attribute of a class that is a value of its metaclass."""
    metaclass: type = type(cls)
    for base in metaclass.__mro__:
        if name in vars(base):
            attribute = vars(base)[name]
            is_traced = isinstance(attribute, (types.FunctionType, classmethod, staticmethod))
            if is_of_user(base) and not is_traced:
                trace.refuse(
                    f"it reads `{name}` of the class `{name_of(cls)}`, which is an attribute of its metaclass: "
                    "assign it to the class itself"
                )
            return


def may_be_caught(tx: Any) -> bool:
    """Return whether a handler of the method could catch an exception raised at this point of a trace."""
    while tx is not None:
        if tx.current_instruction.exn_tab_entry is not None or (sys.version_info < (3, 11) and tx.block_stack):
            return True
        tx = getattr(tx, "parent", None)
    return False


def _is_of_argument(source: Any, tx: Any) -> bool:
    """Return whether a value belongs to an argument. Those of the instance and the globals are watched between
    calls.
    """
    root = tx.output.root_tx.f_code
    return bool(getattr(root_of(source), "local_name", root.co_varnames[0]) != root.co_varnames[0])
