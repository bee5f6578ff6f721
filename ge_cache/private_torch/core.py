"""Private names of torch that a relaunch needs as well: `torch._C` only, no Dynamo import. Each has a test.

The cold path has files of its own: `private_torch.dynamo`, `private_torch.fake`, `private_torch.symbols` and
`private_torch.codegen.inductor`, whose functions import `torch._dynamo`, `torch._inductor` and `sympy` when they are
called. `private_torch.shapes` serves both paths.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from gearcache.threads import is_owned


def aoti_runner(path: str) -> Any:
    """Load an AOTInductor shared object: `torch._C._aoti.AOTIModelContainerRunnerCpu` (no Inductor import)."""
    return torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1)


def without_memory(tensors: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return empty tensors of the same dtypes and devices, for `emptied`."""
    return [_nothing(tensor.dtype, tensor.device) for tensor in tensors.values()]


@functools.cache
def _nothing(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return an empty tensor that any number of tensors may share: nothing writes to it."""
    with torch.inference_mode(False), _unseen():
        return torch.empty(0, dtype=dtype, device=device)


def emptied(tensors: Mapping[str, Any], nothing: Sequence[torch.Tensor]) -> bool:
    """Take the memory away from tensors that are `user_managed` constants of a runner; False where one may be a result.

    Besides `tensors`, only the container refers to them. May be called at any moment, such as within the fake kernel of
    an operator.
    """
    if any(tensor._use_count() > 2 for tensor in tensors.values()):
        return False
    with _unseen():
        for tensor, empty in zip(tensors.values(), nothing, strict=True):
            tensor.data = empty
    return True


def rebind(runner: Any, tensors: Mapping[str, Any], others: Mapping[str, torch.Tensor]) -> None:
    """Give the `user_managed` constants of a runner the memory of others with their sizes, strides and dtypes."""
    with _unseen():
        for name, tensor in tensors.items():
            tensor.data = others[name]
    # Without names it makes no new handles, and reads all addresses again.
    runner.update_constant_buffer({}, False, False, True)


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Keep `tensor.data = other` from every mode: below autograd it dispatches an operator (`set_data`)."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


def storage_key(tensor: torch.Tensor) -> int:
    """Return an identity of the storage that also works for fake tensors."""
    return int(tensor.untyped_storage()._cdata)


OpOverload = torch._ops.OpOverload
OpOverloadPacket = torch._ops.OpOverloadPacket


def torch_function_modes() -> int:
    """Return how many torch function modes are active."""
    return int(torch._C._len_torch_function_stack())


def has_own_functions(cls: type) -> bool:
    """Return whether a tensor class handles functions of torch, such as `linear`, before they become operators."""
    handler = getattr(cls.__torch_function__, "__func__", cls.__torch_function__)  # type: ignore[attr-defined]
    default = torch.Tensor.__torch_function__
    return handler not in (getattr(default, "__func__", default), torch._C._disabled_torch_function_impl)


def has_own_dispatch(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's class handles operators itself (`__torch_dispatch__`), so without plain memory."""
    plain: Any = torch._C._disabled_torch_dispatch_impl
    return type(tensor).__torch_dispatch__ is not plain


def process_group_ranks(name: str) -> list[int] | None:
    """Return the ranks of the process group of a name, or None where it is missing."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]

    try:
        group = _resolve_process_group(name)  # type: ignore[arg-type]
    except (RuntimeError, ValueError):
        return None
    return list(torch.distributed.get_process_group_ranks(group))


def is_traced() -> bool:
    """Return whether this thread's calls are traced or transformed, so that its tensors represent others.

    Tracers are `torch.fx`, `torch.jit.trace`, `make_fx`, `torch.export`, fake tensors and all other dispatch modes,
    `torch.func`, and Dynamo, which runs a function while it compiles. `torch.fx` in another thread counts as well.
    """
    if torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if torch._C._is_tracing() or torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch):
        return True
    if "torch.fx._symbolic_trace" in sys.modules and _is_fx_traced():
        return True
    frames: Any = sys.modules.get("torch._dynamo.convert_frame")
    lock: Any = getattr(frames, "compile_lock", None)
    # Where Dynamo is imported without this lock, the release differs: assume a trace, so that the method itself runs.
    return is_owned(lock) if lock is not None else frames is not None and hasattr(frames, "convert_frame")


def _is_fx_traced() -> bool:
    """Return whether `torch.fx` traces: any thread until torch 2.13, then this one; True for an unknown release."""
    tracing: Any = sys.modules["torch.fx._symbolic_trace"]
    is_tracing = getattr(tracing, "_get_is_fx_tracing", lambda: getattr(tracing, "_is_fx_tracing_flag", True))
    return bool(is_tracing())


def traced_as(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """Make Dynamo trace `other` wherever it finds a call of `function`; returns `function`.

    Where Dynamo runs around it (after a graph break), it skips the function and everything that it calls.
    """
    callee: Any = function
    callee._torchdynamo_inline = other
    # A release without these names never serves a call from a graph (`gearcache.torch_names`), so nothing needs
    # skipping.
    with contextlib.suppress(AttributeError):
        frames: Any = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(callee.__code__, frames._FrameExecStrategy(skip, skip))
    return function
