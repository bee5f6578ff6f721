"""Tells calls apart that need graphs of their own, although nothing is stored for them."""

from __future__ import annotations

from typing import Any

from gearcache.guards.evidence.constants import to_plain
from gearcache.guards.evidence.names import name_of
from gearcache.interrupts import raise_interrupt
from gearcache.serving.call.call import Call


def kind_of(call: Call) -> str:
    """Return what a trace takes for constant in the arguments of a call: all but sizes, ints and floats."""
    tensors = [(path, str(tensor.dtype), tensor.dim()) for path, tensor in call.tensors.items()]
    return repr((tensors, [(name, _constant(value)) for name, value in call.given.items()]))


def _constant(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value).__name__, [_constant(item) for item in value]
    if type(value) is dict:
        return [(_constant(key), _constant(item)) for key, item in value.items()]
    if type(value) in (int, float):
        return type(value).__name__
    try:
        return to_plain(value)
    except Exception as error:  # `NotConstant`, or what code of its class raises
        raise_interrupt(error)
        return name_of(type(value))
