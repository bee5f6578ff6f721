"""Compare the items of containers where Dynamo takes a shortcut.

Dynamo finds a constant only among constants: for it `1 in [object with an __eq__]`, `1 in [tensor]` and, with dynamic
dims, `3 in x.shape` are False. Keys of a dictionary or a set are equal for it only if they are one object.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator
from typing import Any

from torch._dynamo import utils
from torch._dynamo.utils import _get_fake_tensor
from torch._dynamo.variables.builder import SourcelessBuilder
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.hashable import HashableTracker
from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.variables.tensor import NumpyNdarrayVariable
from torch._dynamo.variables.user_defined import FrozenDataClassVariable, UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.probe import Probes

#: Constants of these classes are equal to no tensor, whatever its values.
_UNLIKE_TENSORS = (str, bytes, type(None))
probes = Probes()


@probes.at(utils, "iter_contains")
def looked_for(
    trace: Any, original: Any, items: Any, search: Any, tx: Any, *by_identity: bool, **keywords: bool
) -> Any:
    """Look for an item; `by_identity` is `check_tensor_identity`, which torch passes until 2.13."""
    trace.note("name", "__eq__")
    candidates = [item.realize() for item in items]
    if search.is_tensor() and not any((*by_identity, *keywords.values())):
        return _is_one_of(trace, candidates, search)
    if not search.is_python_constant() or all(item.is_python_constant() for item in candidates):
        return original(candidates, search, tx, *by_identity, **keywords)
    return _is_among(trace, candidates, search, tx)


@probes.at(HashableTracker, "__eq__")
def equal_keys(trace: Any, original: Any, self: Any, other: object) -> bool:
    """Refuse keys that have an `__eq__`."""
    if isinstance(other, HashableTracker) and self.vt is not other.vt:
        for variable in (*objects_in(self.vt), *objects_in(other.vt)):
            if variable.value_type.__name__ == "FakeScriptObject":
                trace.refuse(
                    "it looks for a process group or another script object in a dictionary or set, which a trace does "
                    "not follow: ask what you need of it (`torch.distributed.get_backend()`) in `__init__`, and keep "
                    "the answer as an attribute"
                )
            elif _has_own_equality(variable):
                trace.refuse(
                    f"it looks for a key in a dictionary or set by the `__eq__` of "
                    f"`{variable.value_type.__qualname__}`, which a trace does not ask: use a frozen dataclass, a "
                    "named tuple or an enum as the key"
                )
    return bool(original(self, other))


def _is_among(trace: Any, items: list[Any], search: Any, tx: Any) -> Any:
    """Return the answer to `search in items` for a constant: true at the first item that is it, or equals it."""
    constant, answer = search.as_python_constant(), None
    for item in items:
        if item.is_python_constant():
            value = item.as_python_constant()
            if value is constant or value == constant:
                return ConstantVariable.create(True)
            continue
        if item.is_tensor():
            if not _is_unlike(item, search):
                trace.refuse("it looks for a constant among tensors, so their values decide what is done")
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


def _is_one_of(trace: Any, items: list[Any], search: Any) -> Any:
    """Return the answer to `search in items` for a tensor: true for the same tensor, otherwise a matter of values."""
    for item in items:
        if item.is_tensor() and _get_fake_tensor(item) is _get_fake_tensor(search):
            return ConstantVariable.create(True)
        if not _is_unlike(search, item):
            trace.refuse("it looks for a tensor among others by their values: compare with `is`")
    return ConstantVariable.create(False)


def _is_unlike(tensor: Any, variable: Any) -> bool:
    """Return whether a tensor differs from a variable whatever its values are; an array of NumPy compares each."""
    is_constant = variable.is_python_constant() and not isinstance(tensor, NumpyNdarrayVariable)
    return is_constant and type(variable.as_python_constant()) in _UNLIKE_TENSORS


def objects_in(variable: Any) -> Iterator[Any]:
    """Yield the objects of users' classes in a key, including the key itself."""
    if getattr(variable, "is_realized", lambda: True)():
        variable = variable.realize()
        if isinstance(variable, TupleVariable):
            for item in variable.items:
                yield from objects_in(item)
        elif isinstance(variable, UserDefinedObjectVariable):
            yield variable


def compares_in_c(variable: Any, method: str) -> bool:
    """Whether an object's class compares by a function of C, which Dynamo calls and of which it guards the class."""
    if not isinstance(variable, UserDefinedObjectVariable) or variable.is_python_constant():
        return False
    compare: Any = getattr(variable.value_type, method)
    is_of_c = not isinstance(compare, types.FunctionType) and compare is not getattr(object, method)
    # Of containers the items are compared; members of an enum of C are constants.
    return is_of_c and getattr(variable, "_base_vt", None) is None and not hasattr(variable.value_type, "__members__")


def _has_own_equality(variable: Any) -> bool:
    """Whether the class of an object has an `__eq__` other than that of a frozen dataclass."""
    equality: Any = variable.value_type.__eq__
    if not isinstance(equality, types.FunctionType):
        return compares_in_c(variable, "__eq__")
    return not (isinstance(variable, FrozenDataClassVariable) and equality.__code__.co_filename == "<string>")
