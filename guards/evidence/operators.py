"""Third-party operators: record which parts are baked into a graph, and whether they are unchanged.

A graph calls such an operator, and the device kernel runs as the process has it. But the schema, the function that
computes result sizes, and every kernel above the device's ran while the graph was made, so their results are part of
it. They are identified as decompositions are, through all that they reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gearcache.errors import UnkeyableValue
from gearcache.guards.evidence import registry as _registry
from gearcache.guards.evidence.identity import described
from gearcache.guards.evidence.reason import Reason

Plain = list[Any]

#: Namespaces of torch 2.13, whose version is in the key.
_OF_TORCH = frozenset(
    [
        *("_c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_debug", "_inductor_test"),
        *("_native", "_quantized", "_test", "aten", "bucketing", "c10d", "c10d_functional", "cplib", "debug_mode_ops"),
        *("debugprims", "device_mesh", "export", "flex_lib", "fsdp", "higher_order", "inductor", "inductor_prims"),
        *("mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx", "onnx_symbolic", "prim", "prims", "profiler"),
        *("quantization", "quantized", "quantized_decomposed", "rngprims", "semi_structured", "sparse"),
        *("static_runtime", "streams", "symm_mem", "torch", "torch_attn"),
    ]
)
#: Namespaces of torch_npu, whose version is in the key too.
_OF_TORCH_NPU = frozenset(["npu", "npugraph_ex", "air"])


def is_outside(name: str) -> bool:
    """Return whether an operator, as `namespace::name`, belongs to neither torch nor torch_npu."""
    namespace = name.partition("::")[0]
    return not (namespace in _OF_TORCH or namespace in _OF_TORCH_NPU or namespace.startswith("npu_"))


def record_operators(names: Iterable[str]) -> Plain:
    """Return `[name, baked-in parts]` of each operator.

    Raises `UnkeyableValue` for an operator that uses a value that another process cannot distinguish.
    """
    return [[name, operator_plain(name)] for name in sorted(set(names))]


def changed_operator(plain: Plain) -> Reason | None:
    """Return the first changed operator, or None."""
    for name, stored in plain:
        try:
            current = operator_plain(name)
        except LookupError:
            return Reason("source", f"operator `{name}`, which the graph calls, does not exist in this process", name)
        except UnkeyableValue as error:
            return Reason("source", f"operator `{name}` was changed: {error}", name)
        for part, before in stored.items():
            if current.get(part) != before:
                text = f"operator `{name}`: its {part} was changed"
                if part == "schema":
                    text = f"operator `{name}` had the schema `{before}`, now `{current[part]}`"
                return Reason("source", text, name)
        if current.keys() != stored.keys():
            new = ", ".join(sorted(current.keys() - stored.keys()))
            return Reason("source", f"operator `{name}` has a new {new}", name)
    return None


def operator_plain(name: str) -> dict[str, Any]:
    """Return part -> plain data of one operator as it is registered now; `LookupError` where it is not registered."""
    operator = _registry.operator_named(name)
    parts: dict[str, Any] = {"schema": str(operator._schema), "tags": sorted(str(tag) for tag in operator.tags)}
    for part, function in _registry.operator_functions(operator):
        parts[part] = described(function, _user(part, name))
    kernels = _registry.operator_kernels(name)
    for key, (place, is_python) in kernels.items():
        if _registry.is_of_device(key) or (key == "CompositeExplicitAutograd" and "Meta" in kernels):
            continue
        part = f"{key} kernel"
        if is_python:
            kernel = _registry.kernel_function(operator, key)
            if kernel is None:
                raise UnkeyableValue("operators", "kernel", f"the {part} of {name} is not a Python function")
            parts[part] = described(kernel, _user(part, name))
        elif key == "CompositeImplicitAutograd":
            detail = f"{name} is made of other operators by code in C++: register it for its device, with a fake"
            raise UnkeyableValue("operators", "kernel", detail)
        else:
            parts[part] = place  # the only known fact of C++ code
    return parts


def _user(part: str, name: str) -> str:
    return f"the {part} of operator {name}"
