"""Every private name of torch that gearcache uses, chosen by feature test. One test per name.

Two groups: the warm path (`torch._C` only, no Dynamo import) at the top, and the cold path, whose functions
import `torch._dynamo`, `torch._inductor` and `sympy` when they are called.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

# -- warm path ---------------------------------------------------------------------------------------------


def aoti_runner(path: str) -> Any:
    """Load an AOTInductor shared object: `torch._C._aoti.AOTIModelContainerRunnerCpu` (no Inductor import)."""
    return torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1)


def storage_key(tensor: torch.Tensor) -> int:
    """Return an identity of the storage that also works for fake tensors."""
    return int(tensor.untyped_storage()._cdata)


def cpu_capability() -> str:
    """Return the instruction set that ATen uses, e.g. `AVX2`."""
    return str(torch.backends.cpu.get_cpu_capability())


OpOverload = torch._ops.OpOverload


def torch_function_modes() -> int:
    """Return how many torch function modes are active."""
    return int(torch._C._len_torch_function_stack())


# -- cold path ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def capture_settings(*, dynamic: bool, duck_shape: bool = False, numbers: tuple[str, ...] = ()) -> Iterator[None]:
    """Set Dynamo up for one full-graph capture of an inference method.

    Parameters and buffers become attributes of the graph; every other tensor, also one that hangs off the
    module, a global or a closure, stays an input, so that a replaced tensor is seen.
    """
    import torch._dynamo.config as dynamo_config
    import torch.fx.experimental._config as fx_config
    from torch._dynamo.utils import dynamo_timed, get_metrics_context
    from torch._dynamo.variables import builder as builder_module
    from torch._dynamo.variables.torch_function import torch_function_mode_stack_state_mgr

    builder: Any = builder_module
    original = builder.is_from_unspecialized_nn_module_source
    hidden = {name: getattr(builder, name) for name in ("is_from_global_source", "is_from_nonlocal_source")}

    def is_parameter_or_buffer(source: Any) -> bool:
        return bool(original(source)) and type(getattr(source, "base", None)).__name__ == (
            "UnspecializedParamBufferSource"
        )

    settings: dict[str, Any] = {
        "install_free_tensors": True,
        "record_runtime_overhead": False,
        "specialize_int": True,
        "specialize_float": True,
        "assume_static_by_default": not dynamic,
        "automatic_dynamic_shapes": False,
        "force_nn_module_property_static_shapes": False,
        "capture_scalar_outputs": False,
    }
    known = {name: value for name, value in settings.items() if hasattr(dynamo_config, name)}
    with contextlib.ExitStack() as stack:
        if numbers:
            compiler_config: Any = torch.compiler.config
            present = [compiler_config.dynamic_sources] if compiler_config.dynamic_sources else []
            stack.enter_context(compiler_config.patch(dynamic_sources=",".join([*present, *numbers])))
        stack.enter_context(dynamo_config.patch(known))
        stack.enter_context(fx_config.patch(use_duck_shape=duck_shape))  # type: ignore[attr-defined]
        stack.enter_context(get_metrics_context())
        stack.enter_context(dynamo_timed("gearcache.capture"))
        stack.enter_context(torch_function_mode_stack_state_mgr)
        try:
            builder.is_from_unspecialized_nn_module_source = is_parameter_or_buffer
            for name in hidden:
                setattr(builder, name, lambda source: False)
            yield
        finally:
            builder.is_from_unspecialized_nn_module_source = original
            for name, function in hidden.items():
                setattr(builder, name, function)


@contextlib.contextmanager
def observed(observer: Any) -> Iterator[None]:
    """Tell an observer (`ge_cache.observed.Observer`) what Dynamo inlines and what it folds into constants."""
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator
    from torch._dynamo.variables import functions, nn_module
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    translator: Any = InliningInstructionTranslator
    variable: Any = TorchInGraphFunctionVariable
    build, call = translator.build_inline_tracer, variable.call_function
    assume: Any = functions.invoke_and_store_as_constant

    def build_inline_tracer(parent: Any, func: Any, args: Any, kwargs: Any, **rest: Any) -> Any:
        observer.inlined(getattr(func, "fn", None), func.source, args)
        return build(parent, func, args, kwargs, **rest)

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        result = call(self, tx, args, kwargs)
        if self.can_constant_fold_through() and result.is_python_constant():
            observer.constant(self.value, self.source, bool(args or kwargs))
        return result

    def invoke_and_store(tx: Any, fn: Any, name: str, args: Any, kwargs: Any) -> Any:
        observer.assumed_constant(fn, bool(args or kwargs))
        return assume(tx, fn, name, args, kwargs)

    places: tuple[Any, ...] = (functions, nn_module)
    try:
        translator.build_inline_tracer = staticmethod(build_inline_tracer)
        variable.call_function = call_function
        for place in places:
            place.invoke_and_store_as_constant = invoke_and_store
        yield
    finally:
        translator.build_inline_tracer = staticmethod(build)
        variable.call_function = call
        for place in places:
            place.invoke_and_store_as_constant = assume


@contextlib.contextmanager
def marked_dynamic(dims: list[tuple[torch.Tensor, int]]) -> Iterator[None]:
    """Mark tensor dims as dynamic where the trace allows it (`maybe_mark_dynamic`), and take the marks back.

    A mark that stayed would change what `torch.compile` makes of the same tensor.
    """
    from torch._dynamo import maybe_mark_dynamic

    before = {id(tensor): (tensor, dict(vars(tensor))) for tensor, _ in dims}
    try:
        for tensor, dim in dims:
            maybe_mark_dynamic(tensor, dim)
        yield
    finally:
        for tensor, attributes in before.values():
            vars(tensor).clear()
            vars(tensor).update(attributes)


def compile_frame(
    function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], compiler: Callable[..., Any]
) -> tuple[Any, Any]:
    """Run Dynamo over one call; returns (frame info, graph capture output)."""
    from torch._dynamo import convert_frame
    from torch._guards import CompileContext, compile_context

    frame = convert_frame._get_frame(function, arguments, keywords)
    with compile_context(CompileContext(convert_frame.get_compile_id({}))):
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
    return frame, output.graph_capture_output(frame.argdefs, frame.kwdefaults)


def side_effects() -> Any:
    """Return the side effects that Dynamo has recorded in the capture under way."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    return InstructionTranslator.current_tx().output.side_effects


def forget_unused_streams(module: torch.fx.GraphModule) -> bool:
    """Keep the current stream, which Dynamo notes wherever there is an accelerator, out of the frame.

    False when the graph itself works with streams: then the frame needs it.
    """
    try:
        from torch._dynamo import graph_bytecode_inputs as noted
    except ImportError:
        return True
    for node in module.graph.nodes:
        space = getattr(getattr(node.target, "_schema", None), "name", "").partition("::")[0]
        if space == "streams" or node.target is noted.get_external_object_by_index:
            return False
    if len(noted.index_to_bytecode_constructor) == 1:
        noted.index_to_bytecode_constructor.clear()
    return not noted.index_to_bytecode_constructor


def tracing_context() -> Any:
    """Return Dynamo's context of the capture under way (fake mode and shape environment)."""
    from torch._guards import TracingContext

    return TracingContext.get()


def dynamo_errors() -> tuple[type[BaseException], ...]:
    """Return the exception classes with which Dynamo refuses a method."""
    from torch._dynamo.exc import TorchDynamoException
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

    return (TorchDynamoException, ConstraintViolationError, GuardOnDataDependentSymNode)


def guard_kinds() -> list[str]:
    """Return the names of all guard kinds that the installed torch knows."""
    from torch._dynamo.guards import GuardBuilder

    return sorted(name for name in vars(GuardBuilder) if name.isupper())


def fake_mode(shape_env: Any = None) -> Any:
    """Return a mode in which tensors have shapes but no data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a fake one; imports nothing, as there is none before its module was imported."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)


@contextlib.contextmanager
def without_meta_modes() -> Iterator[None]:
    """Turn off dispatch modes (fake tensors among them) and every default device of `meta`."""
    from torch import overrides
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import _disable_current_modes

    functions: Any = overrides
    stack = functions._get_current_function_mode_stack()
    kept = [mode for mode in stack if not (isinstance(mode, DeviceContext) and mode.device.type == "meta")]
    changed = len(kept) != len(stack)

    def exchange(old: list[Any], new: list[Any]) -> None:
        for _ in old:
            functions._pop_mode()
        for mode in new:
            functions._push_mode(mode)

    holder = torch._GLOBAL_DEVICE_CONTEXT
    context = getattr(holder, "device_context", None)
    is_global = context is not None and context.device.type == "meta"
    with _disable_current_modes():
        if changed:
            exchange(stack, kept)
        if is_global:
            holder.device_context = None
        try:
            yield
        finally:
            if is_global:
                holder.device_context = context
            if changed:
                exchange(kept, stack)


def swap_tensors(left: torch.Tensor, right: torch.Tensor) -> None:
    """Exchange what two tensor objects are, as `torch.utils.swap_tensors` does, also where weak references exist.

    Marks that a user left on the first one (`set_dim_gears`) stay on it.
    """
    own = (
        "fake_mode",
        "fake_device",
        "_fake_device",
        "constant",
        "real_tensor",
        "pytype",
        "dispatch_keys",
        "_is_param",
    )
    torch._C._swap_tensor_impl(left, right)
    if type(left) is not type(right):
        left.__class__, right.__class__ = type(right), type(left)
        fake, plain = (left, right) if "fake_mode" in vars(left) else (right, left)
        for name in [name for name in vars(fake) if name in own or "memo" in name]:
            vars(plain)[name] = vars(fake).pop(name)


def inductor_compile(
    module: torch.fx.GraphModule,
    inputs: list[torch.Tensor],
    options: dict[str, Any],
    inner: Callable[..., Any],
    linker_flags: Sequence[str] = (),
) -> Any:
    """Compile with AOTInductor; `inner(compile_inner, module, inputs, **options)` wraps the last stage."""
    from torch._inductor.compile_fx import compile_fx_aot, compile_fx_inner

    def wrapped(graph: Any, example_inputs: Any, **keywords: Any) -> Any:
        return inner(compile_fx_inner, graph, example_inputs, **keywords)

    with linked_with(linker_flags):
        return compile_fx_aot(module, inputs, inner_compile=wrapped, config_patches=options)  # type: ignore[arg-type]


@contextlib.contextmanager
def linked_with(flags: Sequence[str]) -> Iterator[None]:
    """Add flags, without their leading dash, to each link of Inductor's C++ builder, which has no setting for it."""
    from torch._inductor import cpp_builder as builder_module

    builder: Any = builder_module
    original = builder._get_optimization_cflags

    def extended(*arguments: Any, **keywords: Any) -> tuple[list[str], list[str]]:
        compiler_flags, linker_flags = original(*arguments, **keywords)
        return compiler_flags, [*linker_flags, *flags]

    builder._get_optimization_cflags = extended
    try:
        yield
    finally:
        builder._get_optimization_cflags = original


def is_grad_switch(node: torch.fx.Node) -> bool:
    """Whether a captured node only turns autograd on or off, which means nothing in a graph that runs without."""
    return node.target in (torch._C._set_grad_enabled, torch.set_grad_enabled) and not node.users


def print_expression(expression: Any) -> str:
    """Return a size expression as Python source."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(expression))


def size_symbol(name: str) -> Any:
    """Return a symbol for a size."""
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)


class SymbolicInputs:
    """Fake inputs whose sizes are expressions over named symbols; collects what a compiler assumes about them."""

    def __init__(self, hints: dict[str, int]) -> None:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self._env = ShapeEnv()
        self.mode = fake_mode(self._env)
        self._names: dict[Any, str] = {}
        self.sizes: dict[str, Any] = {}
        for name, hint in hints.items():
            source = ConstantSource(name)
            hint = max(hint, 2)  # less would be taken for a constant
            symbol = self._env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
            self._names[symbol] = name
            self.sizes[name] = self._env.create_symintnode(symbol, hint=hint, source=source)

    def tensor(self, sizes: list[Any], strides: list[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return a fake tensor; sizes and strides may be symbolic."""
        with self.mode:
            return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    def assumptions(self) -> list[str]:
        """Return the guards that were added since, as Python source over the names."""
        import sympy

        rename = {symbol: size_symbol(name) for symbol, name in self._names.items()}
        conditions = [self._env.simplify(self._env.replace(guard.expr)) for guard in self._env.guards]
        found = [item.xreplace(rename) for item in conditions if getattr(item, "free_symbols", None)]
        for symbol, bounds in self._env.var_to_range.items():
            replaced = self._env.replacements.get(symbol)
            if (
                symbol in rename and str(rename[symbol])[:1] == "u"
            ):  # a symbol of `mark_unbacked`: code wants at least 2
                found.append(rename[symbol] >= bounds.lower)
            if symbol in rename and replaced is not None and replaced != symbol:
                found.append(sympy.Eq(rename[symbol], replaced.xreplace(rename), evaluate=False))
            elif symbol in rename and bounds.upper.is_Integer and int(bounds.upper) < 2**62:
                found.append(rename[symbol] <= bounds.upper)
        return list(dict.fromkeys(print_expression(item) for item in found))


def process_group_ranks(name: str) -> list[int] | None:
    """Return the ranks of the process group of a name, or None where there is no such group."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]

    try:
        group = _resolve_process_group(name)  # type: ignore[arg-type]
    except (RuntimeError, ValueError):
        return None
    return list(torch.distributed.get_process_group_ranks(group))


def tracing(mode: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which compilers find the fake mode of the graph that they are given."""
    from torch._guards import TracingContext, tracing

    return tracing(TracingContext(mode))


def python_dispatcher() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which composite operators are decomposed by Python, which keeps sizes symbolic."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()
