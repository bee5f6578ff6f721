"""Report what Dynamo inlines, and what it folds into constants."""

from __future__ import annotations

from typing import Any

from torch._dynamo.symbolic_convert import InliningInstructionTranslator, InstructionTranslatorBase
from torch._dynamo.variables import functions
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from gearcache.ge_cache.private_torch.probe import Probes

probes = Probes()


@probes.at(InliningInstructionTranslator, "build_inline_tracer")
def entered(
    trace: Any, original: Any, parent: Any, func: Any, args: Any, kwargs: Any, *rest: Any, **keywords: Any
) -> Any:
    """Note a function that the trace enters."""
    trace.observer.inlined(getattr(func, "fn", None), func.source, args)
    return original(parent, func, args, kwargs, *rest, **keywords)


@probes.at(InstructionTranslatorBase, "import_source")
def imported(trace: Any, original: Any, self: Any, module_name: str) -> Any:
    """Note a module that is hidden by another object of its name."""
    try:
        return original(self, module_name)
    except AssertionError:
        trace.observer.hidden(module_name)
        raise


@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Note a function of torch, and a result that becomes a constant."""
    trace.observer.left_untraced(self.value, self.source)
    result = original(self, tx, args, kwargs)
    if result.is_python_constant():
        all_arguments = [*args, *kwargs.values()]
        if self.can_constant_fold_through():
            trace.observer.constant(self.value, self.source, all_arguments)
        elif not all_arguments:
            trace.observer.queried(self.value, self.source)
    return result


@probes.at(functions, "invoke_and_store_as_constant")
def assumed_constant(trace: Any, original: Any, tx: Any, fn: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Note a function whose result is assumed constant."""
    all_arguments = [*args, *kwargs.values()]
    is_plain = not kwargs and all(value.is_python_constant() for value in all_arguments)
    arguments = [value.as_python_constant() for value in all_arguments] if is_plain else None
    trace.observer.assumed_constant(fn, arguments)
    return original(tx, fn, name, args, kwargs)
