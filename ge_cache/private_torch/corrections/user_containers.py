"""Refuse what Dynamo takes or makes a standard dictionary or deque of, where it has a user's class.

It merges a dictionary whose class has its own `__iter__` or `keys` by the items that `dict` holds, where Python asks
the class. And since torch 2.14 it copies an object of a subclass of `deque` as a `deque`.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from torch._dynamo.variables import user_defined
from torch._dynamo.variables.builtin import DictBuiltinVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.user_defined import UserDefinedDictVariable

from gearcache.ge_cache.private_torch.probe import Place, Probes, named_methods

_COPYING = ("copy", "__copy__")
#: Updates a dictionary since torch 2.15; before, a call of the method asks the class.
_UPDATE = "dict_update"
probes = Probes()


@probes.at(DictBuiltinVariable, "call_custom_dict")
def made_dictionary(trace: Any, original: Any, tx: Any, user_cls: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Refuse `dict(table)`."""
    _check(trace, args)
    return original(tx, user_cls, *args, **kwargs)


@probes.at(ConstDictVariable, "nb_or_impl")
@probes.at(UserDefinedDictVariable, "nb_or_impl")
def joined(trace: Any, original: Any, self: Any, tx: Any, other: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse `table | other`."""
    _check(trace, (self, other))
    return original(self, tx, other, *arguments, **keywords)


@probes.at_each(lambda: [(ConstDictVariable, _UPDATE)] if hasattr(ConstDictVariable, _UPDATE) else [])
def updated(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Refuse an update by a table."""
    _check(trace, args)
    return original(self, tx, args, kwargs)


@probes.at_each(lambda: named_methods(ConstDictVariable, "update") if hasattr(ConstDictVariable, _UPDATE) else [])
def called_update(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `other.update(table)`."""
    if name == "update":
        _check(trace, args)
    return original(self, tx, name, args, kwargs)


def _check(trace: Any, variables: Iterable[Any]) -> None:
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
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `copy` of a deque of a user's class."""
    if name in _COPYING:
        _refuse_copy(trace, self)
    return original(self, tx, name, args, kwargs)


@probes.at_each(lambda: _deques("sq_repeat_impl", "sq_concat_impl"))
def repeated(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse `*` and `+` of a deque of a user's class."""
    _refuse_copy(trace, self)
    return original(self, *arguments, **keywords)


def _refuse_copy(trace: Any, deque: Any) -> None:
    trace.refuse(
        f"it copies a `{deque.value_type.__qualname__}` by `copy`, `*` or `+`, of which a trace makes a `deque`: "
        "call the class with the old one as its argument"
    )
