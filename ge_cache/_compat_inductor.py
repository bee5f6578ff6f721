"""Private names of torch with which AOTInductor compiles. One test per name; nothing of Inductor is imported before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch


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
