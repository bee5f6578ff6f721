"""Dynamo hooks that compare the items of containers where Dynamo takes a shortcut.

Dynamo finds a constant only among constants: for it `1 in [object with an __eq__]`, `1 in [tensor]` and, with dynamic
dims, `3 in x.shape` are False. Keys of a dictionary or a set are equal for it only if they are one object.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterator
from typing import Any


def watched_comparisons(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that look for an equal item."""
    from torch._dynamo import utils
    from torch._dynamo.variables import hashable

    dynamo_utils: Any = utils
    contains = dynamo_utils.iter_contains

    @functools.wraps(contains)
    def iter_contains(items: Any, search: Any, tx: Any, *by_identity: bool, **keywords: bool) -> Any:
        """`by_identity` is `check_tensor_identity`, which torch passes until 2.13."""
        facts.asked_for("__eq__")
        candidates = [item.realize() for item in items]
        if search.is_tensor() and not any((*by_identity, *keywords.values())):
            return _is_one_of(facts, candidates, search)
        if not search.is_python_constant() or all(item.is_python_constant() for item in candidates):
            return contains(candidates, search, tx, *by_identity, **keywords)
        return _is_among(facts, candidates, search, tx)

    yield dynamo_utils, "iter_contains", iter_contains
    key: Any = hashable.HashableTracker
    init_key, equal = key.__init__, key.__eq__

    @functools.wraps(init_key)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        init_key(self, *arguments, **keywords)
        if any(_objects(self.vt)):
            facts.asked_for("__eq__")
            facts.asked_for("__hash__")

    @functools.wraps(equal)
    def __eq__(self: Any, other: object) -> bool:
        if isinstance(other, key) and self.vt is not other.vt:
            for variable in (*_objects(self.vt), *_objects(other.vt)):
                if variable.value_type.__name__ == "FakeScriptObject":
                    facts.refuse(
                        "it looks for a process group or another script object in a dictionary or set, which a trace "
                        "does not follow: ask what you need of it (`torch.distributed.get_backend()`) in `__init__`, "
                        "and keep the answer as an attribute"
                    )
                elif _has_own_equality(variable):
                    facts.refuse(
                        f"it looks for a key in a dictionary or set by the `__eq__` of "
                        f"`{variable.value_type.__qualname__}`, which a trace does not ask: use a frozen dataclass, "
                        "a named tuple or an enum as the key"
                    )
        return bool(equal(self, other))

    yield key, "__init__", init
    yield key, "__eq__", __eq__


def _is_among(facts: Any, items: list[Any], search: Any, tx: Any) -> Any:
    """Return the answer to `search in items` for a constant: true at the first item that is it, or equals it."""
    from torch._dynamo.variables.builder import SourcelessBuilder
    from torch._dynamo.variables.constant import ConstantVariable

    constant, answer = search.as_python_constant(), None
    for item in items:
        if item.is_python_constant():
            value = item.as_python_constant()
            if value is constant or value == constant:
                return ConstantVariable.create(True)
            continue
        if item.is_tensor():
            facts.refuse("it looks for a constant among tensors, so their values decide what is done")
            continue
        is_equal = SourcelessBuilder.create(tx, operator.eq).call_function(tx, [item, search], {})
        if is_equal.is_python_constant():
            if is_equal.as_python_constant():
                return ConstantVariable.create(True)
        elif answer is None:
            answer = is_equal
        else:
            answer = SourcelessBuilder.create(tx, operator.or_).call_function(tx, [answer, is_equal], {})
    return ConstantVariable.create(False) if answer is None else answer


def _is_one_of(facts: Any, items: list[Any], search: Any) -> Any:
    """Return the answer to `search in items` for a tensor: true for the same tensor, otherwise a matter of values."""
    from torch._dynamo.utils import _get_fake_tensor
    from torch._dynamo.variables.constant import ConstantVariable

    for item in items:
        if item.is_tensor() and _get_fake_tensor(item) is _get_fake_tensor(search):
            return ConstantVariable.create(True)
        if not (item.is_python_constant() and isinstance(item.as_python_constant(), (str, bytes, type(None)))):
            facts.refuse("it looks for a tensor among others by their values: compare with `is`")
    return ConstantVariable.create(False)


def _objects(variable: Any) -> Iterator[Any]:
    """Yield the objects of users' classes in a key, including the key itself."""
    from torch._dynamo.variables.lists import TupleVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if getattr(variable, "is_realized", lambda: True)():
        variable = variable.realize()
        if isinstance(variable, TupleVariable):
            for item in variable.items:
                yield from _objects(item)
        elif isinstance(variable, UserDefinedObjectVariable):
            yield variable


def _has_own_equality(variable: Any) -> bool:
    """Whether the class of an object has an `__eq__` in Python, other than that of a frozen dataclass."""
    from torch._dynamo.variables.user_defined import FrozenDataClassVariable

    equality: Any = variable.value_type.__eq__
    if not isinstance(equality, types.FunctionType):
        return False
    return not (isinstance(variable, FrozenDataClassVariable) and equality.__code__.co_filename == "<string>")
