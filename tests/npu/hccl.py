"""A stand-in for HCCL: process groups of the emulated NPU, in front of gloo.

A group made with backend `hccl` has a name for GE (`get_hccl_comm_name`), by which the emulator finds it again.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch._C import ScriptObject
from torch._C._distributed_c10d import AllgatherOptions, FakeWork, ProcessGroup, ProcessGroupGloo, Work

from tests.npu.native import host

#: Set in the environment where communicators get other names in each process.
NAMES_OF_PROCESS = "EMULATED_HCCL_NAMES_OF_PROCESS"
#: Communicators of this process by the name that GE uses.
_BY_NAME: dict[str, Any] = {}


def install_hccl() -> None:
    """Make `hccl` a backend of torch.distributed for tensors on `npu`."""

    def create(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return ProcessGroupGloo(store, rank, size, timeout)

    dist.Backend.register_backend("hccl", create, devices=["npu"])
    ProcessGroupGloo.get_hccl_comm_name = _comm_name
    for name, kernel in _KERNELS.items():
        _LIBRARY.impl(name, kernel, "PrivateUse1")


def communicator(name: str) -> Any:
    """Return what `get_hccl_comm_name` gave a name to; KeyError when nothing has this name."""
    return _BY_NAME[name]


def _comm_name(backend: Any, rank: int, init_comm: bool = True) -> str:
    for name, known in _BY_NAME.items():
        if known is backend:
            return name
    # As on a host whose CANN gives a group the same name in each process; else the name is of this process alone.
    scope = os.getpid() if NAMES_OF_PROCESS in os.environ else "job"
    name = f"emulated_{scope}_{len(_BY_NAME)}"
    _BY_NAME[name] = backend
    return name


_LIBRARY = torch.library.Library("c10d", "IMPL")


def _backend(group: ScriptObject) -> Any:
    return ProcessGroup.unbox(group)._get_backend(torch.device("npu"))


def _done() -> ScriptObject:
    return Work.boxed(FakeWork())


def _all_reduce(
    tensors: Any, group: Any, reduce_op: Any, sparse: Any = None, async_op: bool = True, timeout: int = -1
) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp(dist.ReduceOp.RedOpType(reduce_op.op()))
    _backend(group).allreduce([host(tensor) for tensor in tensors], options).wait()
    return tensors, _done()


def _all_gather(output: Any, input_: Any, group: Any, async_op: bool = True, timeout: int = -1) -> Any:
    _backend(group)._allgather_base(host(output), host(input_), AllgatherOptions()).wait()
    return output, _done()


def _reduce_scatter(
    output: Any, input_: Any, group: Any, reduce_op: Any, async_op: bool = True, timeout: int = -1
) -> Any:
    options = dist.ReduceScatterOptions()
    options.reduceOp = dist.ReduceOp(dist.ReduceOp.RedOpType(reduce_op.op()))
    _backend(group)._reduce_scatter_base(host(output), host(input_), options).wait()
    return output, _done()


def _all_gather_each(outputs: Any, inputs: Any, group: Any, async_op: bool = True) -> Any:
    for output, input_ in zip(outputs, inputs, strict=True):
        _all_gather(output, input_, group)
    return _done()


def _reduce_scatter_each(
    outputs: Any, inputs: Any, group: Any, reduce_op: Any, async_op: bool = True, timeout: int = -1
) -> Any:
    for output, input_ in zip(outputs, inputs, strict=True):
        _reduce_scatter(output, input_, group, reduce_op)
    return _done()


_KERNELS = {
    "allreduce_": _all_reduce,
    "_allgather_base_": _all_gather,
    "_reduce_scatter_base_": _reduce_scatter,
    "allgather_into_tensor_coalesced_": _all_gather_each,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter_each,
}
