"""Dynamo hooks that report how a trace uses dictionaries of a user's class."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.private_torch.renamed import all_names

#: Dynamo's methods of a dictionary variable that learn no more of it than single keys. All lookups end in
#: `__contains__` and `getitem_const`; the others pass the variable on, find its methods, or ask for its class.
_LOOKUPS = {"__contains__", "getitem_const", "getitem_const_raise_exception_if_absent"}
_HARMLESS = all_names(
    {
        *_LOOKUPS,
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
#: Functions that create a variable.
_PLAIN = {"__init__", "_get_dict_cls_from_user_cls"}
#: Functions of Dynamo that read the value of a variable for its class.
_CLASS_READERS = {"_call_getattr", "call_isinstance"}
_LOOKUP_CALLS = {"get", "__getitem__", "__contains__"}


@contextlib.contextmanager
def watched_lookups(lookups: Any) -> Iterator[None]:
    """Report to `dependencies.looked_up.Lookups` the dictionaries of a user's class that a trace sees, and their uses.

    Every method of Dynamo's two variable classes that is not known to be harmless counts as a use of all keys. So does
    code that reads the content without these methods, as `str()` of the variable does.
    """
    from torch._dynamo.exc import ObservedKeyError
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.user_defined import UserDefinedDictVariable

    outer: Any = UserDefinedDictVariable
    inner: Any = ConstDictVariable
    depth, thread = 0, threading.get_ident()

    def watched(name: str, function: Any) -> Any:
        def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                if name in _PLAIN or self.source is None:
                    return function(self, *arguments, **keywords)
                note_call(self, arguments)
                try:
                    result = function(self, *arguments, **keywords)
                except ObservedKeyError:
                    if name in _LOOKUPS:
                        note_lookup(self.source, arguments[-1], present=False)
                    raise
                if name in _LOOKUPS:
                    note_lookup(self.source, arguments[-1], present=result if name == "__contains__" else True)
                return result
            finally:
                depth -= 1

        def note_call(self: Any, arguments: tuple[Any, ...]) -> None:
            if type(self) is outer:
                lookups.met(self.source, self.value)
            is_lookup = name == "call_method" and len(arguments) > 1 and arguments[1] in _LOOKUP_CALLS
            if name not in _HARMLESS and not is_lookup:
                lookups.used(self.source)

        def note_lookup(source: Any, key: Any, present: bool) -> None:
            if key.is_python_constant():
                lookups.asked(source, key.as_python_constant(), present)
            else:
                lookups.used(source)

        return method

    def content(name: str) -> property:
        def read(self: Any) -> Any:
            is_watched = depth == 0 and self.source is not None and threading.get_ident() == thread
            if is_watched and sys._getframe(1).f_code.co_name not in _CLASS_READERS:
                lookups.used(self.source)
                if type(self) is inner:  # `[*self.table]`, for which Dynamo guards nothing
                    self.install_dict_keys_match_guard()
            return self.__dict__[name]

        def write(self: Any, value: Any) -> None:
            self.__dict__[name] = value

        return property(read, write)

    patches: list[tuple[Any, str, Any]] = []
    for cls, attributes in ((outer, ("value",)), (inner, ("items", "original_items"))):
        patches += [(cls, name, content(name)) for name in attributes]
        members: dict[str, Any] = {}
        for base in reversed(cls.__mro__):  # `inspect.getattr_static` for each name takes longer than many a trace
            members |= vars(base)
        for name, function in members.items():
            if isinstance(function, types.FunctionType) and not name.isupper():
                patches.append((cls, name, functools.wraps(function)(here(watched(name, function), function))))
    with exchanged(patches):
        yield
