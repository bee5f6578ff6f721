"""Dynamo hooks that refuse what Dynamo forgets of standard containers: bounds, order, class.

It drops the `maxlen` of a deque that is passed in and the side effect of `move_to_end`, turns a copy of a subclass of
`OrderedDict` into an `OrderedDict`, copies an object by its `__dict__` alone, and keeps groups of `groupby` that are
gone.
"""

from __future__ import annotations

import collections
import functools
import itertools
import types
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.method_tables import named_methods
from gearcache.ge_cache.private_torch.renamed import name_here

_HOLDERS = (dict, list, set, frozenset, tuple, collections.deque)
#: Methods by which a class may define its own way of copying.
_WAYS_TO_COPY = ("__getstate__", "__getnewargs__", "__getnewargs_ex__")


def watched_containers(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of Dynamo's functions for deques, ordered dictionaries, copies and groups."""
    yield from _of_deques(facts)
    yield from _of_ordered(facts)
    yield from _of_copies(facts)
    yield from _of_groups(facts)


def _of_deques(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource
    from torch._dynamo.variables.lists import BaseListVariable, DequeVariable

    lists: Any = BaseListVariable
    deques: Any = DequeVariable
    class_of, init_deque, call = lists.cls_for_instance, deques.__init__, deques.call_method

    def refuse() -> None:
        facts.refuse("it uses a deque with a `maxlen`, which a trace forgets: use a list, and drop items by a slice")

    @functools.wraps(class_of)
    def cls_for_instance(obj: Any) -> Any:
        make = class_of(obj)
        if type(obj) is not collections.deque:
            return make
        if obj.maxlen is not None:
            refuse()

        def make_unbounded(items: Any, source: Any) -> Any:
            install_guard(AttrSource(source, "maxlen").make_guard(GuardBuilder.EQUALS_MATCH))
            return make(items, source=source)

        return make_unbounded

    @functools.wraps(init_deque)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        init_deque(self, *arguments, **keywords)
        maxlen = self.maxlen.as_python_constant()
        if maxlen == 0:  # `deque(items, 0)` uses up an iterator; for Dynamo `items[-0:]` is the whole list
            self.items.clear()
        elif maxlen is not None:
            refuse()

    @functools.wraps(call)
    def call_method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if self.maxlen.as_python_constant() is not None:
            refuse()
        return call(self, *arguments, **keywords)

    yield lists, "cls_for_instance", cls_for_instance
    yield deques, "__init__", init
    yield deques, "call_method", call_method


def _of_ordered(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.user_defined import OrderedDictVariable, UserDefinedDictVariable

    def class_of(variable: Any) -> type:
        """Return the class; since torch 2.14 one of the variables represents only an `OrderedDict` itself."""
        cls: type = getattr(variable, "value_type", collections.OrderedDict)
        return cls

    def is_subclass(variable: Any) -> bool:
        return (
            issubclass(class_of(variable), collections.OrderedDict)
            and class_of(variable) is not collections.OrderedDict
        )

    def calling(call: Any) -> Any:
        @functools.wraps(call)
        def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name == "move_to_end" and _has_method_of_ordered(class_of(self), name):
                facts.refuse("it calls `move_to_end`, which a trace does not write back: pop the key and set it again")
            elif name == "copy" and is_subclass(self) and _has_method_of_ordered(class_of(self), name):
                _refuse_copy(facts, class_of(self), "`copy()` or `|`")
            elif name == "__reduce_ex__":  # not an object of a user's class since torch 2.14
                _refuse_copy(facts, class_of(self), "`copy`")
                facts.raise_refusals()  # Dynamo of torch 2.14 fails next, and says less
            return call(self, tx, name, args, kwargs)

        return call_method

    def joining(join: Any) -> Any:
        @functools.wraps(join)
        def nb_or_impl(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if is_subclass(self):
                _refuse_copy(facts, class_of(self), "`copy()` or `|`")
            return join(self, *arguments, **keywords)

        return nb_or_impl

    def representing(represent: Any) -> Any:
        @functools.wraps(represent)
        def repr_impl(self: Any, *arguments: Any) -> Any:
            if is_subclass(self) and _has_method_of_ordered(class_of(self), "__repr__"):
                facts.refuse(
                    f"it makes a text of a `{class_of(self).__qualname__}`, which a trace takes for an `OrderedDict`"
                )
            return represent(self, *arguments)

        return repr_impl

    for kind in dict.fromkeys((OrderedDictVariable, UserDefinedDictVariable)):
        yield from named_methods(kind, ("move_to_end",), calling)
        for name, wrap in (("nb_or_impl", joining), (name_here(kind, "repr_impl"), representing)):
            yield kind, name, wrap(getattr(kind, name))


def _has_method_of_ordered(cls: type, name: str) -> bool:
    """Return whether a class has a method of `OrderedDict`, and none of its own by that name."""
    return getattr(cls, name, None) is getattr(collections.OrderedDict, name)


def _refuse_copy(facts: Any, cls: type, way: str) -> None:
    facts.refuse(
        f"it copies a `{cls.__qualname__}` by {way}, of which a trace makes another object than Python: call the class "
        "with what the old one holds"
    )


def _of_copies(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    objects: Any = UserDefinedObjectVariable
    call = objects.call_method

    @functools.wraps(call)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        """`object.__reduce_ex__`, which `copy` calls, calls `__reduce__`, and also returns items."""
        cls = self.value_type
        if name == "__reduce_ex__" and getattr(cls, name) is object.__reduce_ex__ and not _is_copied_by_dict(cls):
            _refuse_copy(facts, cls, "`copy`")
        return call(self, tx, name, args, kwargs)

    yield objects, "call_method", call_method


def _is_copied_by_dict(cls: Any) -> bool:
    """Return whether a copy of an object is one of its `__dict__` alone, as a trace makes it."""
    if issubclass(cls, _HOLDERS) or cls.__reduce__ is not object.__reduce__:
        return False
    if any(getattr(cls, name, None) is not getattr(object, name, None) for name in _WAYS_TO_COPY):
        return False
    return not any(
        isinstance(attribute, types.MemberDescriptorType) for base in cls.__mro__ for attribute in vars(base).values()
    )


def _of_groups(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.iter import ItertoolsVariable

    tools: Any = ItertoolsVariable
    call = tools.call_function

    @functools.wraps(call)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.value is itertools.groupby:
            facts.refuse("it calls `itertools.groupby`, whose groups a trace keeps where Python drops them: use a loop")
        return call(self, tx, args, kwargs)

    yield tools, "call_function", call_function
