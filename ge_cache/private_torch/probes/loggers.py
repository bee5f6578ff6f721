"""Leave logging out of a trace: graphs log nothing.

A logging call of a method returns None whatever the levels are. Code that changes a logger, asks which levels are
enabled or reads anything else of it is refused.
"""

from __future__ import annotations

import logging
from typing import Any

from torch._dynamo.source import AttrSource, TypeSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.functions import UserFunctionVariable, UserMethodVariable
from torch._dynamo.variables.misc import LoggingLoggerVariable

from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.ge_cache.private_torch.renamed import name_here

#: Methods of loggers and adapters, and functions of `logging`, that log and return None.
_SAYING = ("critical", "debug", "error", "exception", "fatal", "info", "log", "warn", "warning")
#: The originals, before a program replaces one: a replacement is traced.
_METHODS = {name: vars(logging.Logger)[name] for name in _SAYING if name in vars(logging.Logger)}
_FUNCTIONS = {
    vars(owner)[name]: f"`{title}.{name}`"
    for owner, title in ((logging, "logging"), (logging.Logger, "Logger"), (logging.LoggerAdapter, "LoggerAdapter"))
    for name in _SAYING
    if name in vars(owner)
}
_GET_LOGGER = logging.getLogger
_ALLOWED = "of which no graph follows: a cached method may say things to loggers, which are left out"
probes = Probes()


@probes.at(LoggingLoggerVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Leave out what is said to a logger."""
    trace.note("class", type(self.value), None if self.source is None else TypeSource(self.source), False)
    function: Any = getattr(getattr(self.value, name, None), "__func__", None)
    if function is not None and function is _METHODS.get(name):
        trace.note("left out", f"`{name}` of the logger `{self.value.name}`")
        return ConstantVariable.create(None)
    if _is_foreign(function) and self.source is not None:  # `warning_once` of transformers: traced unchanged
        source = AttrSource(TypeSource(self.source), name)
        if hasattr(function, "cache_info"):  # the cached arguments do not matter for a graph either
            function, source = function.__wrapped__, AttrSource(source, "__wrapped__")
        return VariableTracker.build(tx, function, source).call_function(tx, [self, *args], kwargs)
    trace.refuse(f"it calls `{name}` of the logger `{self.value.name}`, {_ALLOWED}", at_once=True)
    return original(self, tx, name, args, kwargs)


@probes.at(LoggingLoggerVariable, "var_getattr")
def read_attribute(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Refuse reads of what a logger has."""
    if name in vars(self.value):
        trace.refuse(f"it reads `{name}` of the logger `{self.value.name}`, {_ALLOWED}", at_once=True)
    return original(self, tx, name)


def _methods() -> list[tuple[Any, str]]:
    """Return what calls methods since torch 2.15, where a method is no function and has one (`im_func`)."""
    method: Any = UserMethodVariable
    name = name_here(UserMethodVariable, "call_function")
    return [] if issubclass(method, UserFunctionVariable) else [(method, name)]


@probes.at(UserFunctionVariable, "call_function")
@probes.at_each(_methods)
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Leave out what a function of `logging` says, and find loggers by name."""
    function = getattr(getattr(self, "im_func", self), "fn", None)
    name = _FUNCTIONS.get(function)
    if name is not None:
        trace.note("left out", name)
        return ConstantVariable.create(None)
    if function is _GET_LOGGER and all(item.is_python_constant() for item in (*args, *kwargs.values())):
        positional = [item.as_python_constant() for item in args]
        keywords = {name: item.as_python_constant() for name, item in kwargs.items()}
        return LoggingLoggerVariable(_GET_LOGGER(*positional, **keywords))
    return original(self, tx, args, kwargs)


def _is_foreign(function: Any) -> bool:
    """Return whether a method is not `logging`'s own: from a subclass, or added by a library."""
    return function is not None and getattr(function, "__module__", None) != logging.__name__
