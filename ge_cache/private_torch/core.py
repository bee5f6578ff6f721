"""Private names of torch that a relaunch needs as well: `torch._C` only, no Dynamo import. One test per name.

The cold path has files of its own: `private_torch.dynamo`, `private_torch.fake`, `private_torch.symbols` and
`private_torch.inductor`, whose functions import `torch._dynamo`, `torch._inductor` and `sympy` when they are called.
`private_torch.shapes` is of both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch


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
OpOverloadPacket = torch._ops.OpOverloadPacket


def torch_function_modes() -> int:
    """Return how many torch function modes are active."""
    return int(torch._C._len_torch_function_stack())


def has_own_dispatch(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a class that answers operators itself (`__torch_dispatch__`), so without plain memory."""
    plain: Any = torch._C._disabled_torch_dispatch_impl
    return type(tensor).__torch_dispatch__ is not plain


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


def is_traced() -> bool:
    """Whether something traces or transforms what this thread calls, so that its tensors stand for others.

    That is `torch.fx`, `torch.jit.trace`, `make_fx`, `torch.export`, fake tensors and all other dispatch modes,
    `torch.func`, or Dynamo, which runs a function while it compiles. Of `torch.fx` another thread's counts as well.
    """
    if torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if torch._C._is_tracing() or torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch):
        return True
    if getattr(sys.modules.get("torch.fx._symbolic_trace"), "_is_fx_tracing_flag", False):
        return True
    lock: Any = getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)
    return lock is not None and bool(lock._is_owned())


def traced_as(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """Have Dynamo trace another function wherever it comes upon a call of this one; returns this one.

    Where Dynamo runs beside it (after a graph break) it leaves the function, and all that it calls, alone.
    """
    named: Any = function
    named._torchdynamo_inline = other
    frames: Any = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(named.__code__, frames._FrameExecStrategy(skip, skip))
    return function
