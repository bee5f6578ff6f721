"""Private names of torch by which AOTInductor compiles. Imports nothing of Inductor at import."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from gearcache.errors import UnsafePath
from gearcache.ge_cache.capture.exchanged import exchanged
from gearcache.ge_cache.private_torch.codegen.cpp_objects import ObjectMaker, objects_by
from gearcache.ge_cache.private_torch.codegen.instruction_sets import probed_alike, vectors_of
from gearcache.ge_cache.private_torch.core import OpOverload, storage_key
from gearcache.ge_cache.private_torch.threads import INDUCTOR_MODULES, import_to_the_end
from gearcache.guards.evidence.code import is_users
from gearcache.guards.evidence.operators import is_outside


def inductor_compile(
    module: torch.fx.GraphModule,
    inputs: list[torch.Tensor],
    options: dict[str, Any],
    inner: Callable[..., Any],
    linker_flags: Sequence[str],
    weights: Sequence[torch.Tensor],
    objects: ObjectMaker,
    vectors: str | None,
) -> Any:
    """Compile with AOTInductor; `inner(compile_inner, module, inputs, **options)` wraps the last stage.

    `weights` are the attributes of the module whose values must not enter the code. `objects` compiles the C++ that
    Inductor has written, instead of Inductor. `vectors` are the allowed vector instructions; None allows all of the
    CPU's.
    """
    import_to_the_end(INDUCTOR_MODULES)
    from torch._inductor.compile_fx import compile_fx_aot, compile_fx_inner

    def wrapped(graph: Any, example_inputs: Any, **keywords: Any) -> Any:
        _take_sizes_first(graph.graph)
        return inner(compile_fx_inner, graph, example_inputs, **keywords)

    patches = {**unassigned_settings(), **options}
    instruction_sets = probed_alike() if vectors is None else vectors_of(vectors)
    with (
        unread(weights),
        kept_copies(),
        instruction_sets,
        objects_by(objects, linker_flags, header_folder()),
        _with_numbers(),
    ):
        return compile_fx_aot(module, inputs, inner_compile=wrapped, config_patches=patches)  # type: ignore[arg-type]


def _take_sizes_first(graph: torch.fx.Graph) -> None:
    """Move the nodes that take the sizes of inputs to the begin of a graph.

    Inductor has replaced operations of one known value (`x * 0`) by filled tensors, of sizes that later nodes take.
    """
    *_, last = (None, *graph.find_nodes(op="placeholder"))
    for measure in (torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_numel.default):
        for node in graph.find_nodes(op="call_function", target=measure):
            if last is not None and node.args[0].op == "placeholder":
                last.append(node)
                last = node


@contextlib.contextmanager
def _with_numbers() -> Iterator[None]:
    """Let AOTInductor take ints: its code reads them from one-element tensors, but its lists of inputs refuse them.

    They are the last inputs, so removing them from the lists moves no other.
    """
    from torch._inductor import virtualized
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    wrapper: Any = CppWrapperCpu
    handlers: Any = vars(virtualized)["V"]  # its target depends on the graph being compiled
    checks, constructor = wrapper.generate_input_output_runtime_checks, wrapper.codegen_model_constructor

    def with_inputs(function: Any, inputs: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        @functools.wraps(function)
        def call(self: Any) -> Any:
            graph_inputs = handlers.graph.graph_inputs
            handlers.graph.graph_inputs = inputs(graph_inputs)
            try:
                return function(self)
            finally:
                handlers.graph.graph_inputs = graph_inputs

        return call

    def tensors(inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in inputs.items() if hasattr(value, "get_size")}

    with exchanged(
        [
            (wrapper, "generate_input_output_runtime_checks", with_inputs(checks, tensors)),
            (wrapper, "codegen_model_constructor", with_inputs(constructor, dict.fromkeys)),
        ]
    ):
        yield


def settle_folder(fallback: str) -> str:
    """Fix and return the folder of Inductor's files, by default in the temporary folder.

    Returns `fallback` where other users can write to the default: files there are loaded and become part of entries.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    from gearcache.cache.files.trust import check_parents

    usual = cache_dir()
    try:
        check_parents(Path(usual, "file"))
    except (OSError, UnsafePath) as error:
        sys.stderr.write(f"gearcache worker: {error}\n")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = fallback
        return fallback
    return usual


def header_folder() -> Path:
    """Return the folder of Inductor's precompiled headers: in the temporary folder at Inductor's import."""
    from torch._inductor import codecache

    return Path(codecache._HEADER_DIR)


@contextlib.contextmanager
def unread(weights: Sequence[torch.Tensor]) -> Iterator[None]:
    """Keep Inductor from folding one-element weights, whose value it would read from the attribute."""
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder

    folder: Any = UniformValueConstantFolder
    original = folder._deduce_value
    storages = {storage_key(tensor) for tensor in weights}

    def deduce_value(self: Any, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            value = functools.reduce(getattr, str(node.target).split("."), self.module)
            if isinstance(value, torch.Tensor) and storage_key(value) in storages:
                return self.unknown_value
        return original(self, node)

    with exchanged([(folder, "_deduce_value", deduce_value)]):
        yield


@contextlib.contextmanager
def kept_copies() -> Iterator[None]:
    """Keep Inductor from replacing `x + 0`, `x * 1` and `cat(x.split(...))` by `x`, and `cat(xs).split(...)` by `xs`.

    Eager mode makes new tensors there.

    Otherwise a result would share memory with an input, or would show a later write to the input: torch simplifies sums
    so with `torch.zeros(n)` as the 0, and from 2.14 on with numbers. The kernel that uses the result does the addition
    as well.
    """
    from torch._inductor.fx_passes import joint_graph, post_grad

    def remove_no_ops(gm: Any, zeros: Any, ones: Any) -> None:
        """Keep them."""

    def is_never_valid(match: Any) -> bool:
        return False

    checks = (post_grad.is_valid_splitwithsizes_cat, post_grad.is_valid_cat_splitwithsizes)
    tables = (matcher.patterns.values() for matcher in post_grad.pass_patterns)
    entries = {id(entry): entry for entry in itertools.chain.from_iterable(itertools.chain(*tables))}.values()
    replaced = [(entry, "extra_check", is_never_valid) for entry in entries if entry.extra_check in checks]
    with exchanged([(joint_graph, "remove_no_ops", remove_no_ops), *replaced]):
        yield


def unassigned_settings() -> dict[str, Any]:
    """Return the settings that the process has assigned, with their previous values: defaults and environment."""
    from torch._inductor import config
    from torch.utils._config_module import _UNSET_SENTINEL as UNSET

    settings: Any = config
    initial_values = {}
    for name, entry in settings._config.items():
        assigned = entry.user_override.get()
        initial = entry.default if entry.env_value_default is UNSET else entry.env_value_default
        # A list or dict counts as assigned after the first read.
        if assigned is not UNSET and assigned != initial:
            initial_values[name] = initial
    return initial_values


def known_settings() -> set[str]:
    """Return the names of all settings of Inductor."""
    import torch._inductor.config as settings

    return set(settings.get_config_copy())


def replaced(operators: set[Any]) -> list[str]:
    """Return the names of operators for which this process has registered code with Inductor itself.

    Those are among `operators`, which are not torch's, and all operators of torch that have code of a user.
    """
    from torch._inductor import decomposition, lowering

    own_lowerings = lowering.lowerings.keys() - lowering.fallbacks  # a fallback is registered as a call of the operator
    names = {item.name() for item in operators if item in decomposition.decompositions or item in own_lowerings}
    tables: list[dict[Any, Any]] = [lowering.lowerings, decomposition.decompositions]
    entries = [entry for table in tables for entry in table.items()]
    users: set[Any] = {item for item, function in entries if isinstance(item, OpOverload) and is_users(function)}
    return sorted(names | {item.name() for item in users if not is_outside(item.name())})


def record_strides_anew(graph: torch.fx.GraphModule) -> None:
    """Make Inductor determine the strides of results anew in a changed graph: torch 2.14 has already noted them."""
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    output.meta.pop("original_output_strides", None)
