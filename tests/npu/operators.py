"""What the operators of GE compute, as far as the emulated graphs use them, with torch on the CPU.

Read from the declarations in torchair (`auto_generated_ge_raw_ops.py`) and from Ascend's operator documentation. A
real device may round differently; an operator that is missing here is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: ge DataType value -> torch dtype (`torchair.ge.DataType`).
DTYPES: dict[int, torch.dtype] = {
    0: torch.float32,
    1: torch.float16,
    2: torch.int8,
    3: torch.int32,
    4: torch.uint8,
    6: torch.int16,
    9: torch.int64,
    11: torch.float64,
    12: torch.bool,
    16: torch.complex64,
    17: torch.complex128,
    27: torch.bfloat16,
}

Handler = Callable[..., Any]
OPERATORS: dict[str, Handler] = {}


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler: it is called with the operator (its attributes) and the input tensors."""

    def register(handler: Handler) -> Handler:
        OPERATORS.update(dict.fromkeys(names, handler))
        return handler

    return register


def _numbers(tensor: Tensor) -> list[int]:
    return [int(value) for value in tensor.reshape(-1).tolist()]


def _same(dtype_of: Tensor, value: Tensor) -> Tensor:
    return value.to(dtype_of.dtype)


for _name, _function in {
    "Cos": torch.cos,
    "Neg": torch.neg,
    "Rsqrt": torch.rsqrt,
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "ZerosLike": torch.zeros_like,
}.items():
    OPERATORS[_name] = lambda op, x, function=_function: function(x)

for _name, _function in {
    "Add": torch.add,
    "FloorDiv": torch.floor_divide,
    "Less": torch.lt,
    "LessEqual": torch.le,
    "Minimum": torch.minimum,
    "Mul": torch.mul,
    "Pow": torch.pow,
    "Sub": torch.sub,
}.items():
    OPERATORS[_name] = lambda op, x, y, function=_function: function(x, y)


@operator("RealDiv", "Div")
def _divide(op: Any, x: Tensor, y: Tensor) -> Tensor:
    return _same(x, torch.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc"))


@operator("Muls")
def _muls(op: Any, x: Tensor) -> Tensor:
    return x * op.float("value")


@operator("Swish")
def _swish(op: Any, x: Tensor) -> Tensor:
    scale = op.float("scale", 1.0)
    return torch.nn.functional.silu(x) if scale == 1.0 else x * torch.sigmoid(scale * x)


@operator("Cast")
def _cast(op: Any, x: Tensor) -> Tensor:
    return x.to(DTYPES[op.int("dst_type")])


@operator("Identity")
def _identity(op: Any, x: Tensor) -> Tensor:
    return x.clone()


@operator("MatMul", "MatMulV2")
def _matmul(op: Any, a: Tensor, b: Tensor, bias: Tensor | None = None, offset: Tensor | None = None) -> Tensor:
    a = a.t() if op.bool("transpose_x1") else a
    b = b.t() if op.bool("transpose_x2") else b
    return torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)


@operator("BatchMatMul")
def _batch_matmul(op: Any, a: Tensor, b: Tensor, bias: Tensor | None = None, offset: Tensor | None = None) -> Tensor:
    a = a.transpose(-1, -2) if op.bool("adj_x1") else a
    b = b.transpose(-1, -2) if op.bool("adj_x2") else b
    product = torch.matmul(a, b)
    return product if bias is None else product + bias


@operator("SoftmaxV2")
def _softmax(op: Any, x: Tensor) -> Tensor:
    (axis,) = op.ints("axes") or [-1]
    return torch.softmax(x, axis, dtype=torch.float32 if op.bool("half_to_float") else None)


@operator("ReduceMean")
def _mean(op: Any, x: Tensor, axes: Tensor) -> Tensor:
    dtype = DTYPES.get(op.int("dtype", 28))
    return torch.mean(x, _numbers(axes), keepdim=op.bool("keep_dims"), dtype=dtype)


@operator("ReduceSum")
def _sum(op: Any, x: Tensor, axes: Tensor) -> Tensor:
    return torch.sum(x, _numbers(axes), keepdim=op.bool("keep_dims"), dtype=DTYPES.get(op.int("dtype", 28), x.dtype))


@operator("ReduceProdD")
def _product(op: Any, x: Tensor) -> Tensor:
    for axis in sorted((axis % max(1, x.dim()) for axis in op.ints("axes")), reverse=True):
        x = torch.prod(x, axis, keepdim=op.bool("keep_dims"), dtype=x.dtype)
    return x


@operator("ArgMaxWithValue")
def _argmax_with_value(op: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    found = torch.max(x, op.int("dimension"), keepdim=op.bool("keep_dims"))
    return found.indices.to(torch.int32), found.values


@operator("Shape")
def _shape(op: Any, x: Tensor) -> Tensor:
    return torch.tensor(list(x.shape), dtype=DTYPES[op.int("dtype", 3)])


@operator("Reshape")
def _reshape(op: Any, x: Tensor, shape: Tensor) -> Tensor:
    return x.reshape(_numbers(shape))


@operator("Unsqueeze")
def _unsqueeze(op: Any, x: Tensor) -> Tensor:
    for axis in sorted(op.ints("axes")):
        x = x.unsqueeze(axis)
    return x


@operator("ExpandDims")
def _expand_dims(op: Any, x: Tensor, axis: Tensor) -> Tensor:
    return x.unsqueeze(int(axis))


@operator("Squeeze")
def _squeeze(op: Any, x: Tensor) -> Tensor:
    axes = op.ints("axis")
    return x.squeeze(tuple(axes)) if axes else x.squeeze()


@operator("Transpose")
def _transpose(op: Any, x: Tensor, order: Tensor) -> Tensor:
    return x.permute(_numbers(order)).contiguous()


@operator("BroadcastTo", "Expand")
def _broadcast(op: Any, x: Tensor, shape: Tensor) -> Tensor:
    sizes = _numbers(shape)
    lead = len(sizes) - x.dim()
    full = [x.shape[index - lead] if size == -1 else size for index, size in enumerate(sizes)]
    return torch.broadcast_to(x, full).contiguous()


@operator("Range")
def _range(op: Any, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    return torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


@operator("Pack")
def _pack(op: Any, *tensors: Tensor) -> Tensor:
    return torch.stack(tensors, op.int("axis"))


@operator("ConcatV2")
def _concat(op: Any, *tensors: Tensor) -> Tensor:
    return torch.cat(tensors[:-1], int(tensors[-1]))


@operator("SplitV")
def _split(op: Any, x: Tensor, sizes: Tensor, dim: Tensor) -> tuple[Tensor, ...]:
    parts = _numbers(sizes)
    rest = x.shape[int(dim)] - sum(part for part in parts if part >= 0)
    return torch.split(x, [rest if part == -1 else part for part in parts], int(dim))


@operator("StridedSliceV2")
def _strided_slice(
    op: Any, x: Tensor, begin: Tensor, end: Tensor, axes: Tensor | None = None, strides: Tensor | None = None
) -> Tensor:
    starts, stops = _numbers(begin), _numbers(end)
    dims = _numbers(axes) if axes is not None else list(range(len(starts)))
    steps = _numbers(strides) if strides is not None else [1] * len(starts)
    index: list[Any] = [slice(None)] * x.dim()
    for dim, start, stop, step in zip(dims, starts, stops, steps, strict=True):
        index[dim] = slice(start, stop, step)
    return x[tuple(index)].contiguous()


@operator("Gather")
def _gather_first(op: Any, x: Tensor, indices: Tensor) -> Tensor:
    return _gather(op, x, indices, torch.tensor(op.int("batch_dims")))


@operator("GatherV2")
def _gather(op: Any, x: Tensor, indices: Tensor, axis: Tensor) -> Tensor:
    assert op.int("batch_dims") == 0, "the emulator knows no batch_dims"
    dim = int(axis) % max(1, x.dim())
    flat = indices.reshape(-1).long()
    flat = torch.where(flat < 0, flat + x.shape[dim], flat)
    sizes = [*x.shape[:dim], *indices.shape, *x.shape[dim + 1 :]]
    return torch.index_select(x, dim, flat).reshape(sizes)


@operator("ScatterElements")
def _scatter_elements(op: Any, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    reduction = op.text("reduction", "none")
    assert reduction in ("none", "add"), f"the emulator knows no reduction {reduction}"
    if reduction == "add":
        return torch.scatter_add(x, op.int("axis"), index.long(), updates)
    return torch.scatter(x, op.int("axis"), index.long(), updates)


@operator("SelectV2")
def _select(op: Any, condition: Tensor, then: Tensor, otherwise: Tensor) -> Tensor:
    return torch.where(condition, then, otherwise)


@operator("HcomAllReduce")
def _all_reduce(op: Any, x: Tensor) -> Tensor:
    """Summed over the ranks of the communicator that the graph names."""
    assert op.text("reduction") == "sum", "the emulator knows no other reduction"
    total = x.clone()
    op.communicator().allreduce(total).wait()
    return total


@operator("HcomAllGather")
def _all_gather(op: Any, x: Tensor) -> Tensor:
    """The tensors of all ranks, one below the other."""
    gathered = x.new_empty((x.shape[0] * op.int("rank_size"), *x.shape[1:]))
    op.communicator()._allgather_base(gathered, x.contiguous()).wait()
    return gathered


@operator("HcomReduceScatter")
def _reduce_scatter(op: Any, x: Tensor) -> Tensor:
    """Summed over the ranks; each keeps its share of the first dim."""
    assert op.text("reduction") == "sum", "the emulator knows no other reduction"
    share = x.new_empty((x.shape[0] // op.int("rank_size"), *x.shape[1:]))
    op.communicator()._reduce_scatter_base(share, x.contiguous()).wait()
    return share
