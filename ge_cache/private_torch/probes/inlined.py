"""Report what Dynamo inlines, and what it folds into constants."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import types
from typing import Any

import torch
from torch._dynamo import symbolic_convert
from torch._dynamo.symbolic_convert import InliningInstructionTranslator
from torch._dynamo.variables import functions
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.guards.evidence.code import is_library_file, is_users, is_versioned
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
_SETTING_DTYPE = (torch.set_default_dtype, torch._C._set_default_dtype)
#: Their answers depend on what is installed.
_OF_PACKAGES = (importlib.util.find_spec, importlib.metadata.version)
_ENVIRONMENT = type(os.environ).__getitem__
#: The step of a path from a function without arguments to its result.
CALLED = ("call", None)

probes = Probes()


@probes.at(InliningInstructionTranslator, "build_inline_tracer")
def entered(
    trace: Any, original: Any, parent: Any, func: Any, args: Any, kwargs: Any, *rest: Any, **keywords: Any
) -> Any:
    """Note a function that the trace enters."""
    function = getattr(func, "fn", None)
    if isinstance(function, types.FunctionType):
        if function is _ENVIRONMENT and len(args) == 2:
            trace.note("environment", str(args[1].as_python_constant()))
        trace.note_function(function, func.source)
    return original(parent, func, args, kwargs, *rest, **keywords)


@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Note a function of torch, and a result that becomes a constant."""
    if self.value in _SETTING_DTYPE:  # Dynamo would call it, and other threads make tensors meanwhile
        trace.refuse(
            "it calls `torch.set_default_dtype`, which a graph does not honour: call it around the call of the cached "
            "method, or pass `dtype=` to the functions that make tensors",
            at_once=True,
        )
    if is_users(self.value):  # it runs when the graph is recorded
        trace.note("untraced", self.value, self.source)
    result = original(self, tx, args, kwargs)
    if result.is_python_constant():
        all_arguments = [*args, *kwargs.values()]
        if self.can_constant_fold_through():
            _note_folded(trace, self.value, self.source, all_arguments)
        elif not all_arguments:
            _note_question(trace, self.value, self.source)
    return result


def _note_folded(trace: Any, function: Any, source: Any, arguments: list[Any]) -> None:
    """Note a call that Dynamo replaces with its result."""
    name = name_of(function)
    if not arguments:
        trace.note("call", function, source, CALLED)
    elif name in _OF_DEVICES:
        trace.note("state of a device", name.partition(":")[2], str(arguments[0].as_python_constant()))
    elif name not in _PURE and not name.startswith(("math:", "torch.distributed")):
        trace.refuse(f"it calls `{name}`, whose result may differ elsewhere", at_once=True)


def _note_question(trace: Any, function: Any, source: Any) -> None:
    """Note a call about torch's own settings that is in the graph, but whose result Dynamo uses as a constant."""
    name = getattr(function, "__name__", "")
    if name == "seed":
        trace.refuse(f"it calls `{name_of(function)}`, whose result is another one each time", at_once=True)
    if name.startswith(("get_", "_get_")):
        trace.note("call", function, source, CALLED)


@probes.at(functions.SkipFunctionVariable, "call_function")
def asked_package(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Note a question about an installed package, which Dynamo asks and answers with a constant."""
    result = original(self, tx, args, kwargs)
    if self.value in _OF_PACKAGES and len(args) == 1 and not kwargs:
        trace.note("call", self.value, None, ("called_with", args[0].as_python_constant()))
    elif self.value in _OF_PACKAGES:
        trace.refuse(f"it calls `{name_of(self.value)}` with more than a name")
    return result


@probes.at(symbolic_convert, "is_stdlib")
def is_of_library(trace: Any, original: Any, mod: Any) -> bool:
    """Return whether globals need no guards: a user's module may have the name of one of the standard library."""
    file = getattr(mod, "__file__", None)
    return bool(original(mod)) and (file is None or is_library_file(file))


@probes.at(functions, "invoke_and_store_as_constant")
def assumed_constant(trace: Any, original: Any, tx: Any, fn: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Note a function marked with `torch.compiler.assume_constant_result`, or refuse its arguments.

    The user's mark applies to one process; another process computes and compares the result again.
    """
    if not is_versioned(getattr(fn, "__code__", None)):
        is_plain = not kwargs and all(value.is_python_constant() for value in args)
        arguments = [value.as_python_constant() for value in args] if is_plain else [None]
        is_single = len(arguments) == 1 and type(arguments[0]) in (str, bool, int)
        if not (arguments == [] or is_single) or isinstance(fn, types.MethodType):
            trace.refuse(
                f"it calls `{name_of(fn)}`, whose result is assumed constant: that can be checked in another "
                f"process only for a function of no argument, or of a single text or int",
                at_once=True,
            )
        trace.note("call", fn, None, ("called_with", arguments[0]) if arguments else CALLED)
    return original(tx, fn, name, args, kwargs)
