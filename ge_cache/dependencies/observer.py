"""Observe Dynamo's calls while it traces one method, where results or code enter the trace unguarded."""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from gearcache.errors import CaptureError, MethodRaises
from gearcache.guards.evidence.code import is_versioned
from gearcache.guards.evidence.identity import is_users
from gearcache.guards.evidence.names import name_of

#: Functions whose calls Dynamo folds although they have arguments; their results depend only on these, or on components
#: of the key. All of `math` belongs here too.
_PURE = {
    "torch:_assert",
    "torch._utils:_get_device_index",
    "torch:_VariableFunctionsClass.is_complex",
    "torch:_VariableFunctionsClass.is_floating_point",
    "torch:_VariableFunctionsClass.promote_types",
    "torch.nn._reduction:get_enum",
}
#: Functions of torch's state that take the name of a kind of device.
_OF_DEVICES = {"torch:get_autocast_dtype", "torch:is_autocast_enabled"}
_ENVIRONMENT = type(os.environ).__getitem__
#: Sets that collect the code of all traces, successful or not.
_collected: list[set[types.CodeType]] = []


@contextlib.contextmanager
def collected_code() -> Iterator[set[types.CodeType]]:
    """Collect the code of all functions that traces of this process enter meanwhile."""
    codes: set[types.CodeType] = set()
    _collected.append(codes)
    try:
        yield codes
    finally:
        _collected[:] = [each for each in _collected if each is not codes]


class Observer(Struct):
    """Notes Dynamo's calls while it traces one method."""

    method: str
    functions: list[tuple[types.FunctionType, Any]] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)
    folded: list[tuple[Any, Any]] = field(default_factory=list)
    #: Functions whose result is assumed constant, with their argument.
    assumed: list[tuple[Any, Any]] = field(default_factory=list)
    #: Functions of torch's state, with the kind of device that they were called for.
    of_devices: set[tuple[str, str]] = field(default_factory=set)
    untraced: list[tuple[Any, Any]] = field(default_factory=list)

    def inlined(self, function: Any, source: Any, arguments: list[Any]) -> None:
        """Note a function that the trace enters; `arguments` are Dynamo's variables."""
        if not isinstance(function, types.FunctionType):
            return
        if function is _ENVIRONMENT and len(arguments) == 2:
            self.variables.add(str(arguments[1].as_python_constant()))
        self.functions.append((function, source))
        for codes in _collected:
            codes.add(function.__code__)

    def constant(self, function: Any, source: Any, arguments: list[Any]) -> None:
        """Note a call that Dynamo replaces with its result; `arguments` are Dynamo's variables."""
        if not arguments:
            self.folded.append((function, source))
            return
        name = name_of(function)
        if name in _OF_DEVICES:
            self.of_devices.add((name, str(arguments[0].as_python_constant())))
            return
        if name not in _PURE and not name.startswith(("math:", "torch.distributed")):
            raise CaptureError(self.method, f"it calls `{name}`, whose result may differ elsewhere")

    def queried(self, function: Any, source: Any) -> None:
        """Note a call about torch's own settings that is in the graph, but whose result Dynamo uses as a constant."""
        name = getattr(function, "__name__", "")
        if name == "seed":
            raise CaptureError(self.method, f"it calls `{name_of(function)}`, whose result is another one each time")
        if name.startswith(("get_", "_get_")):
            self.folded.append((function, source))

    def assumed_constant(self, function: Any, arguments: list[Any] | None) -> None:
        """Refuse a call of a function marked with `torch.compiler.assume_constant_result`, or note it.

        The user's mark applies to one process; another process computes and compares the result again. `arguments` are
        the positional ones; None where some are not constants, or are passed by name.
        """
        if is_versioned(getattr(function, "__code__", None)):
            return
        is_single = arguments is not None and len(arguments) == 1 and type(arguments[0]) in (str, bool, int)
        if not (arguments == [] or is_single) or isinstance(function, types.MethodType):
            raise CaptureError(
                self.method,
                f"it calls `{name_of(function)}`, whose result is assumed constant: that can be checked in another "
                f"process only for a function of no argument, or of a single text or int",
            )
        if arguments:
            self.assumed.append((function, arguments[0]))
        else:
            self.folded.append((function, None))

    def hidden(self, module: str) -> None:
        """Refuse a user's global that has the name under which Dynamo must reach a module."""
        name = f"__import_{module.replace('.', '_dot_')}"
        raise CaptureError(self.method, f"its module has a global `{name}`, a name that Dynamo needs; rename it")

    def stale(self, name: str, holder: str) -> None:
        """Refuse a read of a value that the trace wrote in another place: Dynamo would answer with the old value."""
        raise CaptureError(
            self.method,
            f"it writes `{name}` of the {holder} and then reads it at another place (through an object or a subclass, "
            f"in a `__dict__`, as a global or as an attribute of its module), where Dynamo finds the old value; read "
            f"it where it is written, or keep what was written in a variable",
        )

    def missing(self, name: str) -> None:
        """Refuse to delete a missing attribute: eager mode raises `AttributeError`, Dynamo does nothing."""
        raise MethodRaises(self.method, f"it deletes `{name}`, which is not there at this call")

    def left_untraced(self, function: Any, source: Any) -> None:
        """Note a function that Dynamo puts into the graph untraced: it runs when the graph is recorded."""
        if is_users(function):
            self.untraced.append((function, source))
