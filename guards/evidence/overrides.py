"""Kernels that a program registered in place of torch's own (`Library("aten", "IMPL")`, `register_fake`), for the key.

A graph may not show the operator any more whose kernel is replaced, so overrides count for every entry of the process.
Most processes have none, so what compares them is imported where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gearcache.errors import CaptureError, UnkeyableValue
from gearcache.guards.evidence import registry as _registry
from gearcache.guards.evidence.code import is_users
from gearcache.guards.evidence.names import module_of


def overrides_component(method: str, *, compiled: bool) -> list[list[Any]]:
    """Return `[operator, part, identity]` of what this process registered in place of torch's own.

    `compiled` means that a compiler takes the graph; otherwise each operator is called as the process has it.
    `CaptureError` and `UnkeyableValue` name an override that no graph can follow, or that no other process can compare.
    """
    overrides = {(name, part): plain for name, part, plain in (*_kernels(method, compiled), *_fakes())}
    return [[name, part, plain] for (name, part), plain in sorted(overrides.items())]


def _kernels(method: str, compiled: bool) -> Iterator[tuple[str, str, Any]]:
    for library in _registry.python_libraries():
        if library.ns == "_":
            raise CaptureError(method, "this process has registered a fallback for all operators (`Library('_', ...)`)")
        if library.ns == "aten":
            for name, key in _registry.library_kernels(library):
                yield from _kernel(method, name, key, compiled)


def _kernel(method: str, name: str, key: str, compiled: bool) -> Iterator[tuple[str, str, Any]]:
    part = f"{key} kernel"
    if _registry.is_of_device(key):
        # The process runs it as registered. But its presence makes a trace keep a composite operator whole.
        if _registry.has_kernel(name, "CompositeImplicitAutograd"):
            yield name, part, None
        return
    kernel = _registry.kernel_function(_registry.operator_named(name), key)
    if kernel is not None and not _is_programs(kernel):
        return
    if key == "Meta":
        if kernel is None:
            raise UnkeyableValue("overrides", part, f"what is registered for `{name}` is not a Python function")
        from gearcache.guards.evidence.identity import described

        yield name, part, described(kernel, f"the {part} of {name}")
    elif compiled:
        raise CaptureError(
            method,
            f"this process has registered a kernel of its own for `{name}` and {key}, and a compiler knows torch's "
            "only; register it for a device, use backend='eager', or call an operator of your own",
        )
    else:
        yield name, part, None


def _fakes() -> Iterator[tuple[str, str, Any]]:
    for name in _registry.names_with_fakes():
        if name.startswith("aten::"):
            for part, function in _registry.registered_functions(name):
                if _is_programs(function):
                    from gearcache.guards.evidence.identity import described

                    yield name, part, described(function, f"the {part} of {name}")


def _is_programs(function: Any) -> bool:
    """Return whether a function belongs to neither torch nor torch_npu, whose versions are in the key."""
    return is_users(function) and module_of(function).partition(".")[0] != "torch_npu"
