"""Operators that do not come with torch: what a graph takes over from them, and whether it is so in this process.

A graph calls such an operator, and the kernel of its device runs as the process holds it. But the schema, the function
that tells sizes of results, and every kernel above the device's were run while the graph was made: what they said is
part of it. So they are identified as decompositions are, through all that they reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gearcache.errors import UnkeyableValue
from gearcache.guards import _native
from gearcache.guards.identity import described
from gearcache.guards.reason import Reason

Plain = list[Any]

#: Namespaces of torch 2.13 and of torch_npu, whose versions are in the key.
_OWN = re.compile(
    r"aten|prims?|torch|_?c10d(_functional|_functional_autograd)?|symm_mem|fsdp|_dtensor|inductor|inductor_prims|flex_lib"
    r"|higher_order|export|streams|profiler|static_runtime|debug_mode_ops|debugprims|rngprims|sparse|mkl|mkldnn"
    r"|mkldnn_prepacked|onednn|onnx|onnx_symbolic|_?quantized|quantization|quantized_decomposed|_native|_test"
    r"|_inductor_(test|debug)|cplib|bucketing|device_mesh|semi_structured|torch_attn"
    r"|npu|npu_\w+|npugraph_ex|air"
)
#: Kernels that the graph calls, and does not hold.
_OF_DEVICE = re.compile(
    r"(Sparse|SparseCsr|Quantized|NestedTensor)?(CPU|CUDA|HIP|FPGA|MAIA|XLA|MPS|IPU|XPU|HPU|VE|Lazy|MTIA|PrivateUse[123])"
)


def is_outside(name: str) -> bool:
    """Whether an operator, as `namespace::name`, is of neither torch nor torch_npu."""
    return _OWN.fullmatch(name.partition("::")[0]) is None


def record_operators(names: Iterable[str]) -> Plain:
    """Return `[name, what a graph takes over from it]` of each operator.

    `UnkeyableValue` for one that uses what cannot be told apart in another process.
    """
    return [[name, operator_plain(name)] for name in sorted(set(names))]


def changed_operator(plain: Plain) -> Reason | None:
    """Return the first operator that is another one now, or None."""
    for name, stored in plain:
        try:
            found = operator_plain(name)
        except LookupError:
            return Reason("source", f"operator `{name}`, which the graph calls, does not exist in this process", name)
        except UnkeyableValue as error:
            return Reason("source", f"operator `{name}` was changed: {error}", name)
        for part, before in stored.items():
            if found.get(part) != before:
                text = f"operator `{name}`: its {part} was changed"
                if part == "schema":
                    text = f"operator `{name}` had the schema `{before}`, now `{found[part]}`"
                return Reason("source", text, name)
        if found.keys() != stored.keys():
            new = ", ".join(sorted(found.keys() - stored.keys()))
            return Reason("source", f"operator `{name}` has a new {new}", name)
    return None


def operator_plain(name: str) -> dict[str, Any]:
    """Return part -> plain data of one operator as it is registered now; `LookupError` where it is not."""
    operator = _native.operator_named(name)
    found: dict[str, Any] = {"schema": str(operator._schema), "tags": sorted(str(tag) for tag in operator.tags)}
    for part, function in _native.operator_functions(operator):
        found[part] = described(function, _user(part, name))
    kernels = _native.operator_kernels(name)
    for key, (place, is_python) in kernels.items():
        if _OF_DEVICE.fullmatch(key) or (key == "CompositeExplicitAutograd" and "Meta" in kernels):
            continue
        part = f"{key} kernel"
        if is_python:
            kernel = _native.kernel_function(operator, key)
            if kernel is None:
                raise UnkeyableValue("operators", "kernel", f"the {part} of {name} is no Python function")
            found[part] = described(kernel, _user(part, name))
        elif key == "CompositeImplicitAutograd":
            detail = f"{name} is made of other operators by code in C++: register it for its device, with a fake"
            raise UnkeyableValue("operators", "kernel", detail)
        else:
            found[part] = place  # all that is known of code in C++
    return found


def _user(part: str, name: str) -> str:
    return f"the {part} of operator {name}"
