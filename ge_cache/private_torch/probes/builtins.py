"""Report calls of some builtins, for which Dynamo has a handler per builtin and kinds of arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import FakeIdVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.tensor import TensorVariable

from gearcache.ge_cache.private_torch.probe import Probes

probes = Probes()


@probes.at(BuiltinVariable, "_make_handler")
def made_handler(trace: Any, original: Any, function: Any, kinds: list[type], has_keywords: bool) -> Any:
    """Report what a handler is called with; a result of the report is the result of the call."""
    handler, report = original(function, kinds, has_keywords), _REPORTS.get(function)
    if report is None:
        return handler

    def reporting(tx: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        return report(trace, function, tx, arguments) or handler(tx, arguments, keywords)

    return reporting


def _compared(trace: Any, function: Any, tx: Any, arguments: list[Any]) -> None:
    trace.note("compared", arguments[0].source, arguments[1].source)


def _asked_id(trace: Any, function: Any, tx: Any, arguments: list[Any]) -> Any:
    if len(arguments) != 1 or isinstance(arguments[0], LazyVariableTracker):
        return None
    number = arguments[0].get_id(tx)
    if number is None or arguments[0].source is None:
        return None
    trace.note("hashed", arguments[0].source)
    return FakeIdVariable(number)  # the trace may compare and look it up, but not keep it


def _asked_type(trace: Any, function: Any, tx: Any, arguments: list[Any]) -> None:
    if not isinstance(arguments[0], TensorVariable) or arguments[0].source is None:
        return
    if function is isinstance:
        classes = arguments[1].as_python_constant()
        for cls in classes if isinstance(classes, tuple) else (classes,):
            # A tensor, a parameter and a buffer answer alike for other classes.
            if isinstance(cls, type) and issubclass(cls, torch.Tensor) and cls is not torch.Tensor:
                trace.note("class of a tensor", arguments[0].source)
    elif len(arguments) == 1:
        trace.note("class of a tensor", arguments[0].source)


_REPORTS: dict[Any, Callable[..., Any]] = {
    operator.is_: _compared,
    operator.is_not: _compared,
    id: _asked_id,
    isinstance: _asked_type,
    type: _asked_type,
}
