"""Dynamo hooks that leave logging out of a trace: graphs log nothing.

A logging call of a method returns None whatever the levels are. Whether a level is enabled is a fact that a result may
depend on: the trace gets an answer, and calls check it again. Code that changes a logger or reads anything else of it
is refused.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import Any

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
_IS_ENABLED, _GET_LOGGER = vars(logging.Logger)["isEnabledFor"], logging.getLogger
_ALLOWED = (
    "of which no graph follows: a cached method may say things to loggers, which are left out, and ask those that it "
    "finds in a global or an attribute `isEnabledFor(level)`"
)


def watched_loggers(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (class, name, replacement) of Dynamo's functions for loggers and functions of `logging`."""
    from torch._dynamo.source import AttrSource, TypeSource
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.functions import UserFunctionVariable, UserMethodVariable
    from torch._dynamo.variables.misc import LoggingLoggerVariable

    loggers: Any = LoggingLoggerVariable
    functions: Any = UserFunctionVariable
    variables: Any = VariableTracker
    constants: Any = ConstantVariable
    attribute = name_here(loggers, "var_getattr")
    call_of_logger, attribute_of_logger = loggers.call_method, getattr(loggers, attribute)

    @functools.wraps(call_of_logger)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        facts.met_class(type(self.value), None if self.source is None else TypeSource(self.source))
        function: Any = getattr(getattr(self.value, name, None), "__func__", None)
        if function is not None and function is _METHODS.get(name):
            facts.left_out(f"`{name}` of the logger `{self.value.name}`")
            return constants.create(None)
        level = args[0].as_python_constant() if len(args) == 1 and args[0].is_python_constant() else None
        if function is _IS_ENABLED and type(level) is int and self.source is not None:
            facts.asked_level(self.source, level)
            return constants.create(self.value.isEnabledFor(level))
        if _is_foreign(function) and self.source is not None:  # `warning_once` of transformers: traced unchanged
            source = AttrSource(TypeSource(self.source), name)
            if hasattr(function, "cache_info"):  # the cached arguments do not matter for a graph either
                function, source = function.__wrapped__, AttrSource(source, "__wrapped__")
            return variables.build(tx, function, source).call_function(tx, [self, *args], kwargs)
        facts.refuse(f"it calls `{name}` of the logger `{self.value.name}`, {_ALLOWED}")
        facts.raise_refusals()
        return call_of_logger(self, tx, name, args, kwargs)

    @functools.wraps(attribute_of_logger)
    def var_getattr(self: Any, tx: Any, name: str) -> Any:
        if name in vars(self.value):
            facts.refuse(f"it reads `{name}` of the logger `{self.value.name}`, {_ALLOWED}")
            facts.raise_refusals()
        return attribute_of_logger(self, tx, name)

    def calling(call: Any) -> Any:
        @functools.wraps(call)
        def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
            function = getattr(getattr(self, "im_func", self), "fn", None)
            name = _FUNCTIONS.get(function)
            if name is not None:
                facts.left_out(name)
                return constants.create(None)
            if function is _GET_LOGGER and all(item.is_python_constant() for item in (*args, *kwargs.values())):
                positional = [item.as_python_constant() for item in args]
                keywords = {name: item.as_python_constant() for name, item in kwargs.items()}
                return loggers(_GET_LOGGER(*positional, **keywords))
            return call(self, tx, args, kwargs)

        return call_function

    yield loggers, "call_method", call_method
    yield loggers, attribute, var_getattr
    yield functions, "call_function", calling(functions.call_function)
    if not issubclass(UserMethodVariable, functions):  # since torch 2.15, where a method has a function (`im_func`)
        yield UserMethodVariable, "call_function", calling(UserMethodVariable.call_function)


def _is_foreign(function: Any) -> bool:
    """Return whether a method is not `logging`'s own: from a subclass, or added by a library."""
    return function is not None and getattr(function, "__module__", None) != logging.__name__
