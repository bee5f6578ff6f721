"""Import Ascend's packages (torch_npu, torchair, npugraph_ex) on first use; no other module imports them.

Also reads their process state: storage formats, precision, and the precision with which GE was started.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from gearcache.errors import BackendUnavailable, CacheError
from gearcache.ge_cache.npu.end_of_ge import spare_dynamo_at_exit
from gearcache.ge_cache.npu.part_of_torchair import import_part

#: Storage formats that do not affect the layout (ND, NCHW, NHWC, NCDHW, ...); all others are private.
_BASE_FORMATS = (-1, 0, 1, 2, 27, 30)
_HOW = "see `gearcache doctor`; install `gearcache[npu]`, or use backend='inductor' or 'eager' on CPU"
#: `ge.exec.allow_hf32` (conv, then matmul) of the GE of this process; empty while unknown.
_ge_started_with: list[str] = []


def torch_npu_module() -> Any:
    """Import and return torch_npu; `BackendUnavailable` names what is missing."""
    module = sys.modules.get("torch_npu")
    if module is not None and hasattr(module, "npu"):
        return module
    try:
        import torch_npu
    except ModuleNotFoundError as error:
        if error.name != "torch_npu":
            raise BackendUnavailable("torchair", f"torch_npu needs the package `{error.name}`, {_HOW}") from error
        raise BackendUnavailable("torchair", f"the package torch_npu is not installed, {_HOW}") from None
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendUnavailable(
            "torchair",
            f"torch_npu is installed but cannot be imported ({_reason(error)}); its libraries come with CANN: install "
            f"the CANN toolkit of this torch_npu and run its set_env.sh, {_HOW}",
        ) from error
    return torch_npu


def torchair_module() -> Any:
    """Import and return torchair; `BackendUnavailable` names what is missing."""
    torch_npu_module()
    try:
        import torchair

        torchair.get_compiler  # noqa: B018 - torch_npu puts a lazy module in place, which fails at the first use
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        raise BackendUnavailable("torchair", f"torchair cannot be imported ({_reason(error)}), {_HOW}") from error
    watch_ge()
    return torchair


def ge_modules() -> None:
    """Import the part of torchair that text generated for GE imports; all of torchair where that does not work."""
    torch_npu_module()
    is_first = "torchair.core._backend" not in sys.modules
    if import_part(("torchair.core._backend", "torchair.core._npu_graph_executor", "torchair.ge._ge_graph")):
        watch_ge()
        if is_first:
            spare_dynamo_at_exit(sys.modules["torchair.core._backend"])
    else:
        torchair_module()


def torchair_config_class() -> Any:
    """Return `torchair.CompilerConfig` without importing all of torchair."""
    torch_npu_module()
    if import_part(("torchair.configs.compiler_config",)):
        return sys.modules["torchair.configs.compiler_config"].CompilerConfig
    return torchair_module().CompilerConfig


def converter_module() -> Any:
    """Return torchair's converter to GE, which needs all of torchair."""
    torchair_module()
    return importlib.import_module("torchair._ge_concrete_graph.fx2ge_converter")


def ge_model_class() -> Any:
    """Return the protobuf class of a GE model."""
    return importlib.import_module("torchair._ge_concrete_graph.ge_ir_pb2").ModelDef


def npugraph_ex_module() -> Any:
    """Import and return npugraph_ex; `BackendUnavailable` names what is missing."""
    torch_npu_module()
    try:
        import npugraph_ex
    except ImportError as error:
        raise BackendUnavailable("torchair", f"npugraph_ex cannot be imported ({error}), {_HOW}") from error
    return npugraph_ex


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def decompositions(package: Any) -> dict[Any, Callable[..., Any]]:
    """Return the table of torchair or npugraph_ex; also fix meta functions as it does before its first compile."""
    utilities: Any = importlib.import_module(f"{package.__name__}._utils")
    table: dict[Any, Callable[..., Any]] = utilities.get_npu_default_decompositions()
    register = utilities.register_matmul_backward_decomp
    if utilities.DispatchKey.AutogradPrivateUse1 in torch.ops.aten.to.other.py_kernels:
        # The other package was imported before: npugraph_ex calls this, and torchair 2.13.0 fails in it.
        utilities.register_matmul_backward_decomp = lambda: None
    try:
        utilities.add_npu_patch(table, package.CompilerConfig())
    finally:
        utilities.register_matmul_backward_decomp = register
    return table


def kernels_left_out(package: Any) -> list[str]:
    """Return the names of operators that a user excluded from static kernels, in this process."""
    return sorted(
        importlib.import_module(f"{package.__name__}._acl_concrete_graph.static_kernel")._static_kernel_blacklist
    )


def is_private_format(tensor: torch.Tensor) -> bool:
    """Return whether an NPU tensor's memory order differs from its sizes and strides (FRACTAL_NZ, ...)."""
    return tensor.device.type == "npu" and torch_npu_module().get_npu_format(tensor) not in _BASE_FORMATS


def precision_options() -> Callable[[], tuple[Any, ...]]:
    """Return a function that reads the settings of arithmetic (hf32, cube math type) fast enough for every call."""
    torch_npu = torch_npu_module()
    option = torch_npu._C._npu_getOption
    return lambda: (option("ALLOW_MATMUL_HF32"), option("ALLOW_CONV_HF32"), option("CUBE_MATH_TYPE"))


def hf32() -> list[bool]:
    """Return whether matmul and conv may round their inputs to 19 bits, as currently set."""
    npu = torch_npu_module().npu
    return [bool(npu.matmul.allow_hf32), bool(npu.conv.allow_hf32)]


def watch_ge() -> None:
    """Record GE's start-up options; unknown if GE was already running. Nothing where torchair is not imported."""
    backend: Any = sys.modules.get("torchair.core._backend")
    if not hasattr(backend, "_GLOBAL_COMPILE_OPTION"):  # not imported, or only in part
        return
    options = backend._get_global_op_compile_config
    if backend._GLOBAL_COMPILE_OPTION is not None or hasattr(options, "__wrapped__"):
        return

    @functools.wraps(options)
    def recorded_options() -> dict[str, str]:
        config: dict[str, str] = options()
        if not _ge_started_with:
            _ge_started_with.append(config["ge.exec.allow_hf32"])
        return config

    backend._get_global_op_compile_config = recorded_options


def check_precision_of_ge() -> bool:
    """Raise `CacheError` when GE was started with another hf32 than the current one: its graphs would use that one.

    GE reads hf32 once, at its start. Returns False when it started before `watch_ge`, so that its setting is unknown.
    """
    matmul, conv = hf32()
    if _ge_started_with and _ge_started_with[0] != f"{conv:d}{matmul:d}":
        of_conv, of_matmul = (digit == "1" for digit in _ge_started_with[0])
        raise CacheError(
            f"GE was started in this process with allow_hf32 {of_matmul} for matmul and {of_conv} for conv, and it is "
            f"{matmul} and {conv} now; GE takes it once per process: set it before the first graph"
        )
    return bool(_ge_started_with)
