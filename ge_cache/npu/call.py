"""The call of one kernel that torchair generated, with checks that the state at its load is unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gearcache.errors import InputError
from gearcache.ge_cache.backend import Runner
from gearcache.ge_cache.npu.ascend import precision_options, torch_npu_module


def kernel_call(
    kernel: Callable[..., Any], weights: list[torch.Tensor], header: Mapping[str, Any], examples: Sequence[torch.Tensor]
) -> Runner:
    """Return the call of one kernel.

    Storage formats, the deterministic level and the precision (hf32, cube math type) must be the same as at the load:
    the graph was compiled for them.
    """
    torch_npu = torch_npu_module()
    get_format, get_level = torch_npu.get_npu_format, torch_npu.npu._get_deterministic_level
    get_precision = precision_options()
    level, precision, no_grad = get_level(), get_precision(), torch.no_grad
    on_npu = [index for index, tensor in enumerate(examples) if tensor.device.type == "npu"]
    formats = [get_format(examples[index]) for index in on_npu]
    copied_back, outputs, method, owners = (header[name] for name in ("copied_back", "outputs", "method", "owners"))

    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if (
            [get_format(inputs[index]) for index in on_npu] != formats
            or get_level() != level
            or get_precision() != precision
        ):
            raise _change_error(method, inputs, dict(zip(on_npu, formats, strict=True)), level, precision)
        if owners:
            sizes = [inputs[index].size(dim) for index, dim in owners]
            return list(kernel(*sizes, *inputs, *weights))
        return list(kernel(*inputs, *weights))

    def run_without_grad(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        with no_grad():
            return run(inputs)

    def run_and_copy(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        results = run_without_grad(inputs)
        for index, value in zip(copied_back, results[outputs:], strict=True):
            inputs[index].copy_(value)
        return results[:outputs]

    if copied_back:
        run_and_copy.writes_copies = True  # type: ignore[attr-defined]
        return run_and_copy
    # GE has no autograd; the operators of an aclgraph would record weights that require grad.
    return run if header["ge"] else run_without_grad


def _change_error(
    method: str, inputs: list[torch.Tensor], formats: dict[int, int], level: int, precision: tuple[Any, ...]
) -> InputError:
    torch_npu = torch_npu_module()
    for index, expected in formats.items():
        actual = torch_npu.get_npu_format(inputs[index])
        if actual != expected:
            way_out = "cast it with torch_npu.npu_format_cast, or call `.refresh()` on the cached method"
            return InputError(
                method, f"tensor {index}", f"of storage format {actual}", f"{expected}, as at load; {way_out}"
            )
    way_out = "as at load; call `.refresh()` after a change"
    actual = torch_npu.npu._get_deterministic_level()
    if actual != level:
        return InputError(method, "deterministic level", str(actual), f"{level}, {way_out}")
    actual = precision_options()()
    return InputError(
        method, "allow_hf32 of matmul and conv, and cube_math_type", str(actual), f"{precision}, {way_out}"
    )
