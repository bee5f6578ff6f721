"""Dynamo hooks for dictionaries and deques of users' classes, of which Dynamo takes or makes the standard ones.

It merges a dictionary whose class has its own `__iter__` or `keys` by the items that `dict` holds, where Python asks
the class. And since torch 2.14 it copies an object of a subclass of `deque` as a `deque`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from gearcache.ge_cache.private_torch.method_tables import named_methods

_COPYING = ("copy", "__copy__")


def watched_user_containers(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that merge dictionaries and copy deques."""
    yield from _of_merges(facts)
    yield from _of_deques(facts)


def _of_merges(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    from torch._dynamo.variables.builtin import DictBuiltinVariable
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.user_defined import UserDefinedDictVariable

    dictionary: Any = ConstDictVariable
    maker: Any = DictBuiltinVariable
    make = maker.call_custom_dict

    def check(variables: Iterable[Any]) -> None:
        for variable in variables:
            cls = getattr(variable.realize(), "value_type", None)
            if isinstance(cls, type) and issubclass(cls, dict) and _goes_its_own_way(cls):
                facts.refuse(
                    f"it merges or copies a `{cls.__qualname__}`, which has its own `__iter__` or `keys`, by the items "
                    "that `dict` holds: go through its items in a loop"
                )

    @functools.wraps(make)
    def call_custom_dict(tx: Any, user_cls: Any, *args: Any, **kwargs: Any) -> Any:
        check(args)
        return make(tx, user_cls, *args, **kwargs)

    def joining(join: Any) -> Any:
        @functools.wraps(join)
        def nb_or_impl(self: Any, tx: Any, other: Any, *arguments: Any, **keywords: Any) -> Any:
            check((self, other))
            return join(self, tx, other, *arguments, **keywords)

        return nb_or_impl

    def updating(call: Any) -> Any:
        @functools.wraps(call)
        def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name == "update":
                check(args)
            return call(self, tx, name, args, kwargs)

        return call_method

    yield maker, "call_custom_dict", call_custom_dict
    for kind in (dictionary, UserDefinedDictVariable):  # one since torch 2.15 a subclass of the other
        yield kind, "nb_or_impl", joining(kind.nb_or_impl)
    # Since torch 2.15; before, a call of the method asks the class.
    if (update := getattr(dictionary, "dict_update", None)) is not None:

        @functools.wraps(update)
        def dict_update(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
            check(args)
            return update(self, tx, args, kwargs)

        yield dictionary, "dict_update", dict_update
        yield from named_methods(dictionary, ("update",), updating)


def _goes_its_own_way(cls: type) -> bool:
    """Return whether Python asks a class for keys and items when it merges: it does so by its `__iter__`."""
    own: Any = cls
    asked = (own.__iter__, own.keys)
    return own.__iter__ is not dict.__iter__ and any(isinstance(each, types.FunctionType) for each in asked)


def _of_deques(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    kind = deque_variable()
    if kind is None:
        return

    def refuse(deque: Any) -> None:
        facts.refuse(
            f"it copies a `{deque.value_type.__qualname__}` by `copy`, `*` or `+`, of which a trace makes a `deque`: "
            "call the class with the old one as its argument"
        )

    def copying(function: Any) -> Any:
        @functools.wraps(function)
        def operator_impl(self: Any, *arguments: Any, **keywords: Any) -> Any:
            refuse(self)
            return function(self, *arguments, **keywords)

        return operator_impl

    call = kind.call_method

    @functools.wraps(call)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name in _COPYING:
            refuse(self)
        return call(self, tx, name, args, kwargs)

    yield kind, "call_method", call_method
    for name in ("sq_repeat_impl", "sq_concat_impl"):
        yield kind, name, copying(getattr(kind, name))


def deque_variable() -> Any:
    """Return Dynamo's class for a deque of a user's class; None until torch 2.13, which traces no such deque."""
    from torch._dynamo.variables import user_defined

    return getattr(user_defined, "UserDefinedDequeVariable", None)
