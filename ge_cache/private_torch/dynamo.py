"""Private names of torch by which Dynamo captures one method; each has a test. Imports nothing of Dynamo at import."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.capture.numbers import WantedNumbers
from gearcache.ge_cache.capture.weights import Weights


@contextlib.contextmanager
def capture_settings(weights: Weights, numbers: WantedNumbers, *, dynamic: bool) -> Iterator[None]:
    """Set Dynamo up for one full-graph capture of an inference method.

    The `weights` that are bound become attributes of the graph; every other tensor, also one found through the module,
    a global or a closure, stays an input, so that replacing a tensor takes effect. `numbers` are ints that stay inputs
    too.
    """
    import torch._dynamo.config as dynamo_config
    import torch.fx.experimental._config as fx_config
    from torch._dynamo.utils import dynamo_timed, get_metrics_context
    from torch._dynamo.variables import builder as builder_module
    from torch._dynamo.variables.torch_function import torch_function_mode_stack_state_mgr
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    builder: Any = builder_module
    original = builder.is_from_unspecialized_nn_module_source
    hidden = {name: getattr(builder, name) for name in ("is_from_global_source", "is_from_nonlocal_source")}

    def is_bound(source: Any) -> bool:
        return bool(original(source)) and weights.are_bound(source)

    is_static = builder.tensor_always_has_static_shape

    def tensor_always_has_static_shape(tensor: Any, is_tensor: bool, tensor_source: Any) -> Any:
        # A buffer that the method replaces may grow; Dynamo treats all buffers as static.
        if is_tensor and weights.are_replaced(tensor_source) and type(tensor) is not torch.nn.Parameter:
            return False, None
        return is_static(tensor, is_tensor, tensor_source)

    # Decides here which ints become symbols: Dynamo keeps `wrap_literal` itself in a table, for good.
    as_constant, is_constant = builder.VariableBuilder._wrap_lazy_constant, builder.is_int_specialization_case

    def _wrap_lazy_constant(self: Any, value: Any, wrap_fn: Any = None) -> Any:
        if type(value) is not int:
            return as_constant(self, value, wrap_fn)
        if numbers.wants(self.source, value):
            return self.wrap_symint(value, dynamism=DimDynamic.DYNAMIC)
        return as_constant(self, value)

    settings: dict[str, Any] = {
        "install_free_tensors": True,
        "record_runtime_overhead": False,
        "specialize_int": not numbers,  # otherwise an int that may be a symbol never reaches `wants`
        "specialize_float": True,
        "assume_static_by_default": not dynamic,
        "automatic_dynamic_shapes": False,
        "force_nn_module_property_static_shapes": False,
        "capture_scalar_outputs": False,
        "allow_rnn": True,
    }
    supported = {name: value for name, value in settings.items() if hasattr(dynamo_config, name)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(dynamo_config.patch(supported))
        stack.enter_context(fx_config.patch(use_duck_shape=False))  # type: ignore[attr-defined]
        stack.enter_context(get_metrics_context())
        stack.enter_context(dynamo_timed("gearcache.capture"))
        stack.enter_context(torch_function_mode_stack_state_mgr)
        replacements = [(builder, name, here(lambda source: False, function)) for name, function in hidden.items()]
        replacements += [
            (builder, "is_from_unspecialized_nn_module_source", here(is_bound, original)),
            (builder, "tensor_always_has_static_shape", here(tensor_always_has_static_shape, is_static)),
            (builder.VariableBuilder, "_wrap_lazy_constant", here(_wrap_lazy_constant, as_constant)),
            (builder, "is_int_specialization_case", here(lambda value, source: False, is_constant)),
        ]
        stack.enter_context(exchanged(replacements))
        yield


@contextlib.contextmanager
def observed(observer: Any) -> Iterator[None]:
    """Report to an observer (`dependencies.observer.Observer`) what Dynamo inlines and what it folds into constants."""
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator, InstructionTranslatorBase
    from torch._dynamo.variables import functions, nn_module
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    base: Any = InstructionTranslatorBase
    translator: Any = InliningInstructionTranslator
    variable: Any = TorchInGraphFunctionVariable
    build, call = translator.build_inline_tracer, variable.call_function
    assume: Any = functions.invoke_and_store_as_constant
    alias = base.import_source

    def import_source(self: Any, module_name: str) -> Any:
        try:
            return alias(self, module_name)
        except AssertionError:
            observer.hidden(module_name)
            raise

    def build_inline_tracer(parent: Any, func: Any, args: Any, kwargs: Any, **rest: Any) -> Any:
        observer.inlined(getattr(func, "fn", None), func.source, args)
        return build(parent, func, args, kwargs, **rest)

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        observer.left_untraced(self.value, self.source)
        result = call(self, tx, args, kwargs)
        if result.is_python_constant():
            all_arguments = [*args, *kwargs.values()]
            if self.can_constant_fold_through():
                observer.constant(self.value, self.source, all_arguments)
            elif not all_arguments:
                observer.queried(self.value, self.source)
        return result

    def invoke_and_store(tx: Any, fn: Any, name: str, args: Any, kwargs: Any) -> Any:
        all_arguments = [*args, *kwargs.values()]
        is_plain = not kwargs and all(value.is_python_constant() for value in all_arguments)
        observer.assumed_constant(fn, [value.as_python_constant() for value in all_arguments] if is_plain else None)
        return assume(tx, fn, name, args, kwargs)

    replacements = [
        (translator, "build_inline_tracer", staticmethod(here(build_inline_tracer, build))),
        (base, "import_source", here(import_source, alias)),
        (variable, "call_function", here(call_function, call)),
        *((place, "invoke_and_store_as_constant", here(invoke_and_store, assume)) for place in (functions, nn_module)),
    ]
    with exchanged(replacements):
        yield


@contextlib.contextmanager
def marked_dynamic(dims: list[tuple[torch.Tensor, int]]) -> Iterator[None]:
    """Mark tensor dims as dynamic where the trace allows it (`maybe_mark_dynamic`), and remove the marks again.

    A remaining mark would change how `torch.compile` treats the same tensor.
    """
    from torch._dynamo import maybe_mark_dynamic

    originals = {id(tensor): (tensor, dict(vars(tensor))) for tensor, _ in dims}
    try:
        for tensor, dim in dims:
            maybe_mark_dynamic(tensor, dim)
        yield
    finally:
        for tensor, attributes in originals.values():
            vars(tensor).clear()
            vars(tensor).update(attributes)


def mark_for_compile(tensor: torch.Tensor, dims: Iterable[int]) -> None:
    """Mark dims of a tensor as dynamic for `torch.compile` (`mark_dynamic`); a marked dim keeps its range."""
    from torch._dynamo import mark_dynamic

    for dim in dims:
        if dim not in getattr(tensor, "_dynamo_dynamic_indices", ()):
            mark_dynamic(tensor, dim)


def compile_frame(
    function: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    compiler: Callable[..., Any],
    begin: Callable[[Any], None],
) -> tuple[Any, Any, dict[str, Any]]:
    """Run Dynamo over one call; returns (frame info, graph capture output, globals that it created for the frame).

    `begin` receives the frame info first.

    Those globals are removed from the method's module again; aliases of modules (`import_sources`) stay there.
    """
    from torch._dynamo import convert_frame
    from torch._guards import CompileContext, compile_context

    frame = convert_frame._get_frame(function, arguments, keywords)
    begin(frame)
    with compile_context(CompileContext(convert_frame.get_compile_id({}))), _unmoved_random():
        output = convert_frame.compile_frame(
            frame.code,
            frame.globals,
            frame.locals,
            frame.builtins,
            frame.closure,
            compiler_fn=compiler,
            one_graph=True,
            restart_reasons=set(),
        )
    captured = output.graph_capture_output(frame.argdefs, frame.kwdefaults)
    graph: Any = output.tracer_output.output_graph
    installed = {name: frame.globals[name] for name in graph.installed_globals}
    for remove in graph.cleanups:
        remove()
    return frame, captured, installed


@contextlib.contextmanager
def _unmoved_random() -> Iterator[None]:
    """Leave Python's random state unchanged: a trace draws random numbers of its own."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def dynamo_errors() -> tuple[type[BaseException], ...]:
    """Return the exception classes with which Dynamo refuses a method."""
    from torch._dynamo.exc import TorchDynamoException
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

    return (TorchDynamoException, ConstraintViolationError, GuardOnDataDependentSymNode)


def guard_kinds() -> list[str]:
    """Return the names of all guard kinds of the installed torch."""
    from torch._dynamo.guards import GuardBuilder

    return sorted(name for name in vars(GuardBuilder) if name.isupper())


def reads_data(node: torch.fx.Node) -> bool:
    """Whether a captured node is `tensor.data`."""
    return node.target is torch._C._autograd._get_data_attr  # type: ignore[attr-defined]


def assigns_data(node: torch.fx.Node) -> bool:
    """Whether a captured node gives a tensor other memory, as `tensor.data = other` does."""
    # torch 2.14 has an operator for it.
    return node.target in (torch.Tensor.set_, "set_") or str(node.target).startswith("aten.shallow_copy_data_")
