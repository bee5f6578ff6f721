"""Report how a trace uses dictionaries of a user's class.

Every method of Dynamo's two variable classes that is not known to be harmless counts as a use of all keys. So does code
that reads the content without these methods, as `str()` of the variable does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.exc import ObservedKeyError
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.user_defined import UserDefinedDictVariable

from gearcache.ge_cache.dependencies.looked_up import Lookups
from gearcache.ge_cache.private_torch.probe import Nesting, Place, Probes, methods_of
from gearcache.ge_cache.private_torch.renamed import all_names

#: Dynamo's methods of a dictionary variable that learn no more of it than single keys. All lookups end in
#: `__contains__` and `getitem_const`; the others make the variable, pass it on, find its methods, or ask for its class.
_LOOKUPS = {"__contains__", "getitem_const", "getitem_const_raise_exception_if_absent"}
_HARMLESS = all_names(
    {
        *_LOOKUPS,
        "__init__",
        "_get_dict_cls_from_user_cls",
        "_maybe_get_baseclass_method",
        "generic_getattr",
        "get_source_by_walking_mro",
        "install_dict_contains_guard",
        "is_base_vt_modified",
        "is_immutable",
        "is_tensor",
        "lookup_class_mro_attr",
        "make_guard",
        "mp_subscript_impl",
        "python_type",
        "realize",
        "realize_key_vt",
        "resolve_type_attr",
        "set_source_location",
        "sq_contains",
        "unwrap",
        "var_getattr",
    }
)
#: Methods of torch 2.14: they look in tables of the class, or call a method, which counts by itself.
_HARMLESS |= {
    "_lookup_tp_table",
    "_maybe_call_special",
    "_maybe_lookup_method",
    "lookup_instance_dict",
    "lookup_tp_getset_member",
    "lookup_tp_method",
}
#: Methods of torch 2.15: they ask for the class, or call a method or a slot, which counts by itself.
_HARMLESS |= {"call_base_method", "inherits_base_slot", "lookup_slotdefs", "method_flags_type", "python_type_name"}
#: Functions of Dynamo that read the value of a variable for its class.
_CLASS_READERS = {"_call_getattr", "call_isinstance"}
_CALL = "call_method"
_LOOKUP_CALLS = {"get", "__getitem__", "__contains__"}
probes = Probes()


class _Methods(Nesting):
    """Methods of these variables that run now, each inside the one before."""


def _methods(is_chosen: Callable[[str], bool]) -> Iterator[Place]:
    for cls in (UserDefinedDictVariable, ConstDictVariable):
        for name in methods_of(cls):
            if not name.isupper() and is_chosen(name):
                yield cls, name


@probes.at_each(lambda: _methods(lambda name: name in _HARMLESS - _LOOKUPS))
def used_harmlessly(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Learn no more than single keys."""
    with trace.state(_Methods):
        _note_met(trace, self)
        return original(self, *arguments, **keywords)


@probes.at_each(lambda: _methods(lambda name: name == _CALL))
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, *arguments: Any, **keywords: Any) -> Any:
    """Note a method of the dictionary; those that look single keys up end in `looked_up`."""
    with trace.state(_Methods):
        _note_met(trace, self)
        if name not in _LOOKUP_CALLS and self.source is not None:
            trace.state(Lookups).used(self.source)
        return original(self, tx, name, *arguments, **keywords)


@probes.at_each(lambda: _methods(lambda name: name not in _HARMLESS | {_CALL}))
def used(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Note a use of all keys."""
    with trace.state(_Methods):
        _note_met(trace, self)
        if self.source is not None:
            trace.state(Lookups).used(self.source)
        return original(self, *arguments, **keywords)


@probes.at_each(lambda: _methods(lambda name: name in _LOOKUPS))
def looked_up(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Note a key, and whether it was there."""
    with trace.state(_Methods):
        _note_met(trace, self)
        try:
            result = original(self, *arguments, **keywords)
        except ObservedKeyError:
            _note_key(trace, self, arguments[-1], present=False)
            raise
        _note_key(trace, self, arguments[-1], present=result is not False)  # `__contains__` returns a bool
        return result


@probes.at_field(UserDefinedDictVariable, "value")
@probes.at_field(ConstDictVariable, "items", "original_items")
def read_content(trace: Any, self: Any) -> None:
    """Note a read of the content without any of the methods."""
    # The caller of the property that calls this function.
    if trace.state(_Methods).depth or self.source is None or sys._getframe(2).f_code.co_name in _CLASS_READERS:
        return
    trace.state(Lookups).used(self.source)
    if type(self) is ConstDictVariable:  # `[*self.table]`, for which Dynamo guards nothing
        self.install_dict_keys_match_guard()


def _note_met(trace: Any, variable: Any) -> None:
    # One that is being made has no source yet.
    if type(variable) is UserDefinedDictVariable and vars(variable).get("source") is not None:
        trace.state(Lookups).met(variable.source, variable.value)


def _note_key(trace: Any, variable: Any, key: Any, present: bool) -> None:
    if variable.source is None:
        return
    if key.is_python_constant():
        trace.state(Lookups).asked(variable.source, key.as_python_constant(), present)
    else:
        trace.state(Lookups).used(variable.source)
