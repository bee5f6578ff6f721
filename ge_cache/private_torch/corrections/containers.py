"""Refuse what Dynamo forgets of containers: bounds, order, class.

It drops the `maxlen` of a deque that is passed in and the side effect of `move_to_end`, turns a copy of a subclass of
`OrderedDict` into an `OrderedDict`, and since torch 2.14 one of a subclass of `deque` into a `deque`. It merges a
dictionary by the items that `dict` holds, where Python may ask its class. It copies an object by its `__dict__` alone,
and keeps groups of `groupby` that are gone. A key of `max` it calls for constants only.
"""

from __future__ import annotations

import collections
import itertools
import types
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import user_defined
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.iter import ItertoolsVariable
from torch._dynamo.variables.lists import BaseListVariable, DequeVariable
from torch._dynamo.variables.user_defined import (
    OrderedDictVariable,
    UserDefinedDictVariable,
    UserDefinedObjectVariable,
)

from gearcache.ge_cache.private_torch.probe import Probes, named_methods

_HOLDERS = (dict, list, set, frozenset, tuple, collections.deque)
#: Methods by which a class may define its own way of copying.
_WAYS_TO_COPY = ("__getstate__", "__getnewargs__", "__getnewargs_ex__")
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
@probes.at_each(lambda: [(kind, "call_method") for kind in _own_deques()])
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `move_to_end`, and copies."""
    cls = _class_of(self)
    if name == "move_to_end" and _inherits(cls, collections.OrderedDict, name):
        trace.refuse("it calls `move_to_end`, which a trace does not write back: pop the key and set it again")
    elif name in ("copy", "__copy__"):
        _check_copied(trace, cls, name)
    elif name == "__reduce_ex__":  # not an object of a user's class since torch 2.14
        _refuse_copy(trace, cls)
        trace.raise_refusals()  # Dynamo of torch 2.14 fails next, and says less
    return original(self, tx, name, args, kwargs)


@probes.at(OrderedDictVariable, "nb_or_impl")
@probes.at(UserDefinedDictVariable, "nb_or_impl")
@probes.at_each(lambda: [(kind, name) for kind in _own_deques() for name in ("sq_repeat_impl", "sq_concat_impl")])
def joined(trace: Any, original: Any, self: Any, tx: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse `|`, `*` and `+` of classes of users."""
    _check_copied(trace, _class_of(self))
    return original(self, tx, *arguments, **keywords)


def _own_deques() -> list[Any]:
    kind = deque_variable()
    return [] if kind is None else [kind]


def deque_variable() -> Any:
    """Return Dynamo's class for deques of users' classes; None until torch 2.13, which traces no such deque."""
    return getattr(user_defined, "UserDefinedDequeVariable", None)


def _class_of(variable: Any) -> Any:
    """Return the class; since torch 2.14 one of the variables represents only an `OrderedDict` itself."""
    return getattr(variable, "value_type", collections.OrderedDict)


def _check_copied(trace: Any, cls: Any, method: str | None = None) -> None:
    """Refuse an operator, or a method that a class has from `OrderedDict` or `deque`: it makes an object of these."""
    for base in (collections.OrderedDict, collections.deque):
        if issubclass(cls, base) and cls is not base and (method is None or _inherits(cls, base, method)):
            _refuse_copy(trace, cls)


def _inherits(cls: Any, base: Any, method: str) -> bool:
    return getattr(cls, method, None) is getattr(base, method, None)


def _refuse_copy(trace: Any, cls: type) -> None:
    trace.refuse(
        f"it copies a `{cls.__qualname__}` by `copy`, `|`, `+` or `*`, for which a trace makes "
        "another object than Python: call the class with what the old one holds"
    )


@probes.at(UserDefinedObjectVariable, "call_method")
def called_method_of_object(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse copies by `object.__reduce_ex__`, which calls `__reduce__`, and also returns items."""
    cls = self.value_type
    if name == "__reduce_ex__" and getattr(cls, name) is object.__reduce_ex__ and not _is_copied_by_dict(cls):
        _refuse_copy(trace, cls)
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


@probes.at(UserDefinedDictVariable, "__init__")
def met_dictionary(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse a dictionary whose class chooses its keys."""
    original(self, *arguments, **keywords)
    cls = _class_of(self)
    if isinstance(cls.__iter__, types.FunctionType) or isinstance(cls.keys, types.FunctionType):
        trace.refuse(
            f"it uses a `{cls.__qualname__}`, a dictionary whose class has its own `__iter__` or `keys`: Python asks "
            "these where it copies or merges it, and a trace does not; give the class a dictionary as an attribute",
            at_once=True,
        )


@probes.at(BuiltinVariable, "call_function")
def chose(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Refuse a key of `max` and `min`: Dynamo calls it for constants alone, and guards nothing that it reads."""
    if self.fn in (max, min) and "key" in kwargs:
        cause = f"it calls `{self.fn.__name__}()` with a `key`: use a loop, or `torch.argmax` for tensors"
        trace.refuse(cause, at_once=True)
    return original(self, tx, args, kwargs)


@probes.at(ItertoolsVariable, "call_function")
def called_tool(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Refuse `groupby`."""
    if self.value is itertools.groupby:
        trace.refuse("it calls `itertools.groupby`, whose groups a trace keeps where Python drops them: use a loop")
    return original(self, tx, args, kwargs)
