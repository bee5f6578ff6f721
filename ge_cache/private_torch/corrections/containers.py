"""Refuse what Dynamo forgets of containers: bounds, order, class.

It drops the `maxlen` of a deque that is passed in and the side effect of `move_to_end`, turns a copy of a subclass of
`OrderedDict` into an `OrderedDict`, and since torch 2.14 one of a subclass of `deque` into a `deque`. It merges a
dictionary whose class has its own `__iter__` or `keys` by the items that `dict` holds, where Python asks the class. It
copies an object by its `__dict__` alone, and keeps groups of `groupby` that are gone.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Iterable
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import user_defined
from torch._dynamo.variables.builtin import DictBuiltinVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.iter import ItertoolsVariable
from torch._dynamo.variables.lists import BaseListVariable, DequeVariable
from torch._dynamo.variables.user_defined import (
    OrderedDictVariable,
    UserDefinedDictVariable,
    UserDefinedObjectVariable,
)

from gearcache.ge_cache.private_torch.probe import Place, Probes, named_methods

_HOLDERS = (dict, list, set, frozenset, tuple, collections.deque)
#: Methods by which a class may define its own way of copying.
_WAYS_TO_COPY = ("__getstate__", "__getnewargs__", "__getnewargs_ex__")
_COPYING = ("copy", "__copy__")
#: Updates a dictionary since torch 2.15; before, a call of the method asks the class.
_UPDATE = "dict_update"
_BOUNDED = "it uses a deque with a `maxlen`, which a trace forgets: use a list, and drop items by a slice"
probes = Probes()


@probes.at(BaseListVariable, "cls_for_instance")
def met(trace: Any, original: Any, obj: Any) -> Any:
    """Refuse a bounded deque that is passed in, and guard that one without a bound has none."""
    make = original(obj)
    if type(obj) is not collections.deque:
        return make
    if obj.maxlen is not None:
        trace.refuse(_BOUNDED)

    def make_unbounded(items: Any, source: Any) -> Any:
        install_guard(AttrSource(source, "maxlen").make_guard(GuardBuilder.EQUALS_MATCH))
        return make(items, source=source)

    return make_unbounded


@probes.at(DequeVariable, "__init__")
def made(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse a bounded deque that the trace makes."""
    original(self, *arguments, **keywords)
    maxlen = self.maxlen.as_python_constant()
    if maxlen == 0:  # `deque(items, 0)` uses up an iterator, in torch too; for Dynamo `items[-0:]` is the whole list
        self.items.clear()
    elif maxlen is not None:
        trace.refuse(_BOUNDED)


@probes.at(DequeVariable, "call_method")
def called_method_of_deque(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse methods of a bounded deque."""
    if self.maxlen.as_python_constant() is not None:
        trace.refuse(_BOUNDED)
    return original(self, *arguments, **keywords)


@probes.at_each(lambda: named_methods(OrderedDictVariable, "move_to_end"))
@probes.at_each(lambda: named_methods(UserDefinedDictVariable, "move_to_end"))
def called_method_of_ordered(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `move_to_end`, and copies of a subclass."""
    cls = _class_of(self)
    if name == "move_to_end" and _has_method_of_ordered(cls, name):
        trace.refuse("it calls `move_to_end`, which a trace does not write back: pop the key and set it again")
    elif name == "copy" and _is_subclass(cls) and _has_method_of_ordered(cls, name):
        _refuse_copy(trace, cls, "`copy()` or `|`")
    elif name == "__reduce_ex__":  # not an object of a user's class since torch 2.14
        _refuse_copy(trace, cls, "`copy`")
        trace.raise_refusals()  # Dynamo of torch 2.14 fails next, and says less
    return original(self, tx, name, args, kwargs)


@probes.at(ConstDictVariable, "nb_or_impl")
@probes.at(OrderedDictVariable, "nb_or_impl")
@probes.at(UserDefinedDictVariable, "nb_or_impl")
def joined(trace: Any, original: Any, self: Any, tx: Any, other: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse `|` of a subclass of `OrderedDict`, and of a table with its own `__iter__`."""
    if _is_subclass(_class_of(self)):
        _refuse_copy(trace, _class_of(self), "`copy()` or `|`")
    _check_merged(trace, (self, other))
    return original(self, tx, other, *arguments, **keywords)


@probes.at(OrderedDictVariable, "repr_impl")
@probes.at(UserDefinedDictVariable, "repr_impl")
def described(trace: Any, original: Any, self: Any, *arguments: Any) -> Any:
    """Refuse a text of a subclass of `OrderedDict`."""
    cls = _class_of(self)
    if _is_subclass(cls) and _has_method_of_ordered(cls, "__repr__"):
        trace.refuse(f"it makes a text of a `{cls.__qualname__}`, which a trace takes for an `OrderedDict`")
    return original(self, *arguments)


def _class_of(variable: Any) -> type:
    """Return the class; since torch 2.14 one of the variables represents only an `OrderedDict` itself."""
    cls: type = getattr(variable, "value_type", collections.OrderedDict)
    return cls


def _is_subclass(cls: type) -> bool:
    return issubclass(cls, collections.OrderedDict) and cls is not collections.OrderedDict


def _has_method_of_ordered(cls: type, name: str) -> bool:
    """Return whether a class has a method of `OrderedDict`, and none of its own by that name."""
    return getattr(cls, name, None) is getattr(collections.OrderedDict, name)


def _refuse_copy(trace: Any, cls: type, way: str) -> None:
    trace.refuse(
        f"it copies a `{cls.__qualname__}` by {way}, of which a trace makes another object than Python: call the class "
        "with what the old one holds"
    )


@probes.at(UserDefinedObjectVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse copies by `object.__reduce_ex__`, which calls `__reduce__`, and also returns items."""
    cls = self.value_type
    if name == "__reduce_ex__" and getattr(cls, name) is object.__reduce_ex__ and not _is_copied_by_dict(cls):
        _refuse_copy(trace, cls, "`copy`")
    return original(self, tx, name, args, kwargs)


def _is_copied_by_dict(cls: Any) -> bool:
    """Return whether a copy of an object is one of its `__dict__` alone, as a trace makes it."""
    if issubclass(cls, _HOLDERS) or cls.__reduce__ is not object.__reduce__:
        return False
    if any(getattr(cls, name, None) is not getattr(object, name, None) for name in _WAYS_TO_COPY):
        return False
    return not any(
        isinstance(attribute, types.MemberDescriptorType) for base in cls.__mro__ for attribute in vars(base).values()
    )


@probes.at(DictBuiltinVariable, "call_custom_dict")
def made_dictionary(trace: Any, original: Any, tx: Any, user_cls: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Refuse `dict(table)`."""
    _check_merged(trace, args)
    return original(tx, user_cls, *args, **kwargs)


@probes.at_each(lambda: [(ConstDictVariable, _UPDATE)] if hasattr(ConstDictVariable, _UPDATE) else [])
def updated(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Refuse an update by a table."""
    _check_merged(trace, args)
    return original(self, tx, args, kwargs)


@probes.at_each(lambda: named_methods(ConstDictVariable, "update") if hasattr(ConstDictVariable, _UPDATE) else [])
def called_update(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `other.update(table)`."""
    if name == "update":
        _check_merged(trace, args)
    return original(self, tx, name, args, kwargs)


def _check_merged(trace: Any, variables: Iterable[Any]) -> None:
    for variable in variables:
        cls = getattr(variable.realize(), "value_type", None)
        if isinstance(cls, type) and issubclass(cls, dict) and _goes_its_own_way(cls):
            trace.refuse(
                f"it merges or copies a `{cls.__qualname__}`, which has its own `__iter__` or `keys`, by the items "
                "that `dict` holds: go through its items in a loop"
            )


def _goes_its_own_way(cls: type) -> bool:
    """Return whether Python asks a class for keys and items when it merges: it does so by its `__iter__`."""
    own: Any = cls
    asked = (own.__iter__, own.keys)
    return own.__iter__ is not dict.__iter__ and any(isinstance(each, types.FunctionType) for each in asked)


def deque_variable() -> Any:
    """Return Dynamo's class for deques of users' classes; None until torch 2.13, which traces no such deque."""
    return getattr(user_defined, "UserDefinedDequeVariable", None)


def _deques(*names: str) -> list[Place]:
    kind = deque_variable()
    return [(kind, name) for name in names if kind is not None]


@probes.at_each(lambda: _deques("call_method"))
def called_method_of_own_deque(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `copy` of a deque of a user's class."""
    if name in _COPYING:
        _refuse_copy_of_deque(trace, self)
    return original(self, tx, name, args, kwargs)


@probes.at_each(lambda: _deques("sq_repeat_impl", "sq_concat_impl"))
def repeated(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse `*` and `+` of a deque of a user's class."""
    _refuse_copy_of_deque(trace, self)
    return original(self, *arguments, **keywords)


def _refuse_copy_of_deque(trace: Any, deque: Any) -> None:
    trace.refuse(
        f"it copies a `{deque.value_type.__qualname__}` by `copy`, `*` or `+`, of which a trace makes a `deque`: "
        "call the class with the old one as its argument"
    )


@probes.at(ItertoolsVariable, "call_function")
def called_tool(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Refuse `groupby`."""
    if self.value is itertools.groupby:
        trace.refuse("it calls `itertools.groupby`, whose groups a trace keeps where Python drops them: use a loop")
    return original(self, tx, args, kwargs)
