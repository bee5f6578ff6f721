"""Private names of torch by which Dynamo captures one method. Imports nothing of Dynamo at import."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from gearcache.ge_cache.capture.number_choice import WantedNumbers


@contextlib.contextmanager
def capture_settings(numbers: WantedNumbers, *, dynamic: bool) -> Iterator[None]:
    """Set Dynamo up for one full-graph capture of an inference method; `numbers` are ints that stay inputs."""
    import torch._dynamo.config as dynamo_config
    import torch.fx.experimental._config as fx_config
    from torch._dynamo.utils import dynamo_timed, get_metrics_context
    from torch._dynamo.variables.torch_function import torch_function_mode_stack_state_mgr

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
        "skip_guards_on_constant_func_defaults": False,
        "enable_dynamo_decompositions": False,  # of `addcmul_`, `addcdiv_` and others: not exact to the last bit
    }
    supported = {name: value for name, value in settings.items() if hasattr(dynamo_config, name)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(dynamo_config.patch(supported))
        stack.enter_context(fx_config.patch(use_duck_shape=False))  # type: ignore[attr-defined]
        stack.enter_context(get_metrics_context())
        stack.enter_context(dynamo_timed("gearcache.capture"))
        stack.enter_context(torch_function_mode_stack_state_mgr)
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
