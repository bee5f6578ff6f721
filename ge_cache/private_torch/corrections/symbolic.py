"""Compute with sizes and ints where Dynamo's answer is not Python's.

For a symbolic number Dynamo answers wrongly except when comparing it with a number of its kind: `(n > 3) == 0`,
`(n > 3) is True` and `round(n, -1)`; it raises for a negative exponent, and does not for a negative shift. There the
current number is used, and the graph then depends on it. So it is for `n // 2 // -2`, which sympy takes for `n // -4`;
and `n % n`, which it takes for 0, depends on whether `n` is 0.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import Any

import torch
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.utils import specialize_symnode, unpack_iterable
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.functions import UserMethodVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import RangeVariable, TupleVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable
from torch.utils._sympy.functions import FloorDiv

from gearcache.ge_cache.private_torch.corrections.comparisons import compares_in_c
from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.ge_cache.private_torch.renamed import name_here

_IDENTITIES = {operator.is_, operator.is_not}
#: Their second operand decides the kind of the result, or whether they raise.
_POWERS_AND_SHIFTS = {operator.pow, operator.ipow, pow}
_POWERS_AND_SHIFTS |= {operator.lshift, operator.ilshift, operator.rshift, operator.irshift}
_DIVISIONS = {operator.floordiv, operator.ifloordiv, operator.mod, operator.imod, divmod}
_COMPARISONS = {*_IDENTITIES, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}
specialize: Any = specialize_symnode
probes = Probes()


@probes.at(SymNodeVariable, "richcompare_impl")
def compared(trace: Any, original: Any, self: Any, tx: Any, other: Any, op: str) -> Any:
    """Compare a number with one of another kind by its value."""
    other = other.realize()
    if bool in (kinds := (_kind(self), _kind(other))) or complex in kinds:
        return getattr(specialize(self), name_here(SymNodeVariable, "richcompare_impl"))(tx, specialize(other), op)
    return original(self, tx, other, op)


@probes.at(BuiltinVariable, "call_round")
def rounded(trace: Any, original: Any, self: Any, tx: Any, arg: Any, *args: Any, **kwargs: Any) -> Any:
    """Round to digits by the value."""
    return original(self, tx, specialize(arg) if args or kwargs else arg, *args, **kwargs)


@probes.at(BuiltinVariable, "_call_min_max_binary")
def chosen(trace: Any, original: Any, self: Any, tx: Any, a: Any, b: Any) -> Any:
    """Choose the smaller or larger of two numbers as Python does; of tensors it depends on their values which it is."""
    if a is not None and b is not None:
        a, b = a.realize(), b.realize()
        if isinstance(a, SymNodeVariable) or isinstance(b, SymNodeVariable):
            kinds = {_kind(a), _kind(b)}
            if len(kinds) == 2 and kinds <= {int, float, bool}:  # the result has the type of the chosen one
                a, b = specialize(a), specialize(b)
        if a.is_tensor() or b.is_tensor():
            trace.refuse(
                f"it calls `{self.fn.__name__}()` of tensors: use `torch.maximum`, `torch.minimum` or `torch.clamp`"
            )
    return original(self, tx, a, b)


@probes.at(BuiltinVariable, "_make_handler")
def made_handler(trace: Any, original: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Answer comparisons, powers, shifts and divisions."""
    handler = original(function, *arguments, **keywords)
    if function in _POWERS_AND_SHIFTS:
        return functools.partial(_power_or_shift, function, handler)
    if function in _DIVISIONS:
        return functools.partial(_division, function, handler)
    return functools.partial(_comparison, trace, function, handler) if function in _COMPARISONS else handler


def _power_or_shift(function: Any, handler: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    number, count, *modulus = [arg.realize() for arg in args]
    # With a float the result is a float, whatever the second operand is.
    if isinstance(count, SymNodeVariable) and _kind(number) is not None and float not in map(_kind, (number, count)):
        return BuiltinVariable(function).call_function(tx, [number, specialize(count), *modulus], kwargs)
    return handler(tx, args, kwargs)


def _division(function: Any, handler: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    operands = [arg.realize() for arg in args]
    number, divisor = operands[:2]
    kinds = set(map(_kind, operands))
    if float in kinds and any(map(_is_symbolic, operands)):
        # torch rounds the quotient down, as `math.floor(16 / 0.2)`, where Python's `16 // 0.2` is 79. For rests of
        # divisions by floats it fails.
        return BuiltinVariable(function).call_function(tx, [specialize(operand) for operand in operands], kwargs)
    if _is_known(divisor):
        bool(divisor.sym_num != 0)  # it becomes a condition of the graph
    if _is_known(number) and _is_rounded(number) and _kind(divisor) is int and not _is_positive(divisor):
        return BuiltinVariable(function).call_function(tx, [specialize(operand) for operand in operands], kwargs)
    return handler(tx, args, kwargs)


def _comparison(trace: Any, function: Any, handler: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    operands = [arg.realize() for arg in args]
    if function in _IDENTITIES:
        trace.note("compared", *(operand.source for operand in operands))
    (_check_identity if function in _IDENTITIES else _check_equality)(trace, *operands)
    if function not in _IDENTITIES and any(compares_in_c(each, f"__{function.__name__}__") for each in operands):
        trace.refuse(
            f"it compares a {' and a '.join(f'`{each.python_type_name()}`' for each in operands)}, whose values no "
            "check of another call could compare: compare numbers or texts that are made of them before"
        )
    kinds = {_kind(arg) for arg in operands if isinstance(arg, SymNodeVariable)}
    if kinds and function in _IDENTITIES and len(set(map(_kind, operands))) > 1:
        return ConstantVariable.create(function is operator.is_not)  # as for `n is None`, whatever n is
    if kinds and (function in _IDENTITIES or bool in kinds or complex in map(_kind, operands)):
        return BuiltinVariable(function).call_function(tx, [specialize(arg) for arg in operands], kwargs)
    return handler(tx, args, kwargs)


def _check_identity(trace: Any, left: Any, right: Any) -> None:
    if left is right:
        return
    if isinstance(left, UserMethodVariable) and isinstance(right, UserMethodVariable):
        trace.refuse("it asks whether two bound methods are one object: each access makes a new one")
    elif _type_of(left) is _type_of(right) is torch.device:
        trace.refuse("it asks whether two devices are one object: compare them with `==`")


def _check_equality(trace: Any, left: Any, right: Any) -> None:
    if left is not right and isinstance(left, UserMethodVariable) and isinstance(right, UserMethodVariable):
        trace.refuse("it compares bound methods: compare the objects they are bound to")
    for variable in (left, right):
        if isinstance(variable, UserDefinedClassVariable):
            equality: Any = type(variable.value).__eq__
            if isinstance(equality, types.FunctionType):
                name = variable.value.__qualname__
                trace.refuse(f"it compares the class `{name}`, whose metaclass has an `__eq__`: use `is`")


def _is_symbolic(variable: Any) -> bool:
    return isinstance(variable, SymNodeVariable)


def _is_known(variable: Any) -> bool:
    """Return whether a variable is a symbolic number that has a value in the traced call."""
    return isinstance(variable, SymNodeVariable) and bool(variable.sym_num.node.has_hint())


def _is_rounded(number: Any) -> bool:
    """Return whether a number was divided and rounded before."""
    return bool(number.sym_num.node.expr.has(FloorDiv))


def _is_positive(divisor: Any) -> bool:
    """Return whether a divisor is above zero, which becomes a condition of the graph."""
    return bool((divisor.sym_num if _is_known(divisor) else divisor.as_python_constant()) > 0)


def _kind(variable: Any) -> Any:
    """Return the type of a number, also of a symbolic one; None for anything else."""
    return variable.python_type() if variable.is_python_constant() or isinstance(variable, SymNodeVariable) else None


def _type_of(variable: Any) -> Any:
    """Return the type of a constant; a container is not asked, as that would count as a use of all of it."""
    return type(variable.value) if isinstance(variable, ConstantVariable) else None


@probes.at(InstructionTranslatorBase, "pop")
def popped(trace: Any, original: Any, self: Any) -> Any:
    """Unpack the range of `f(*range(1, 7, 2))`, for which Dynamo passes start, stop and step."""
    item = original(self)
    # `isinstance` would realise a lazy variable.
    if type(item) is LazyVariableTracker:
        is_range = type(item.unwrap()) is RangeVariable if item.is_realized() else item.peek_type() is range
    else:
        is_range = type(item) is RangeVariable
    if is_range and sys._getframe(2).f_code.co_name == "CALL_FUNCTION_EX":
        return TupleVariable(unpack_iterable(self, item.realize()))
    return item
