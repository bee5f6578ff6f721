"""An emulator of GE: parses the serialised model that torchair hands over and computes it with torch on the CPU.

Equal numbers say that the *graph* is right under this reading of GE's operators. Nothing is said about a real GE.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.npu.operators import DTYPES, OPERATORS

#: Proto data type -> torch dtype (`ge_ir_pb2`), for descriptors.
_PROTO = {
    1: torch.float32,
    2: torch.float16,
    3: torch.int8,
    4: torch.uint8,
    5: torch.int16,
    7: torch.int32,
    8: torch.int64,
    11: torch.bool,
    12: torch.float64,
    16: torch.complex64,
    17: torch.complex128,
    27: torch.bfloat16,
}


class GeError(RuntimeError):
    """What a real GE would refuse, with the reason."""


class Operator:
    """One operator: its attributes and where its inputs come from."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.type: str = proto.type
        self.name: str = proto.name
        data = [text for text in proto.input if not text.endswith(":-1")]
        self.inputs = [self._reference(text) for text in data]
        self.controls = [text.rpartition(":")[0] for text in proto.input if text.endswith(":-1")]

    @staticmethod
    def _reference(text: str) -> tuple[str, int] | None:
        if not text:
            return None
        name, _, index = text.rpartition(":")
        return name, int(index)

    def int(self, name: str, default: int = 0) -> int:
        if name not in self.proto.attr:
            return default
        attribute = self.proto.attr[name]
        return int(attribute.dt if attribute.WhichOneof("value") == "dt" else attribute.i)

    def float(self, name: str, default: float = 0.0) -> float:
        return float(self.proto.attr[name].f) if name in self.proto.attr else default

    def bool(self, name: str, default: bool = False) -> bool:
        return bool(self.proto.attr[name].b) if name in self.proto.attr else default

    def text(self, name: str, default: str = "") -> str:
        return str(self.proto.attr[name].s.decode()) if name in self.proto.attr else default

    def ints(self, name: str) -> list[Any]:
        return list(self.proto.attr[name].list.i) if name in self.proto.attr else []

    def communicator(self) -> Any:
        """What HCCL gave the name in `group` to."""
        from tests.npu.hccl import communicator

        name = self.text("group")
        try:
            return communicator(name)
        except KeyError:
            raise GeError(f"HCCL knows no communicator {name!r}") from None


class Program:
    """One model, ready to run."""

    def __init__(self, model: bytes) -> None:
        from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef

        parsed = ModelDef()
        parsed.ParseFromString(model)
        self.name = parsed.graph[0].name
        self._operators = _ordered([Operator(proto) for proto in parsed.graph[0].op])
        self._constants = {op.name: _constant(op) for op in self._operators if op.type in ("Const", "FileConstant")}
        self._data = {op.int("index"): op for op in self._operators if op.type in ("Data", "RefData")}
        unknown = (
            {op.type for op in self._operators}
            - set(OPERATORS)
            - {"Data", "RefData", "Const", "FileConstant", "NetOutput"}
        )
        if unknown:
            raise GeError(f"the emulator does not know {', '.join(sorted(unknown))}")

    def check_inputs(self, inputs: Sequence[Tensor]) -> None:
        """Raise `GeError` for inputs of another number, dtype or static size."""
        if len(inputs) != len(self._data):
            raise GeError(f"{len(inputs)} inputs for a graph of {len(self._data)}")
        for index, op in self._data.items():
            tensor, description = inputs[index], op.proto.output_desc[0]
            if tensor.dtype != _PROTO[description.dtype]:
                raise GeError(f"input {index} is {tensor.dtype}, the graph has {_PROTO[description.dtype]}")
            sizes = list(description.shape.dim)
            fits = len(sizes) == tensor.dim() and all(
                wanted in (-1, found) for wanted, found in zip(sizes, tensor.shape, strict=True)
            )
            is_number = not sizes and tensor.shape == (1,)  # torchair hands over an int so
            if not fits and not is_number and sizes != [-2]:
                raise GeError(f"input {index} is of shape {tuple(tensor.shape)}, the graph has {sizes}")
            if not tensor.is_contiguous():
                raise GeError(f"input {index} is not contiguous")

    def input_names(self) -> list[str]:
        """The names of the data operators, in the order of the inputs."""
        return [self._data[index].name for index in range(len(self._data))]

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Compute the outputs. No graph so far writes its inputs: what is written comes out, and is copied back."""
        values: dict[str, Any] = dict(self._constants)
        outputs: list[Tensor] = []
        for op in self._operators:
            if op.type in ("Data", "RefData"):
                values[op.name] = inputs[op.int("index")]
                continue
            if op.name in self._constants:
                continue
            taken = [None if source is None else _output(values, source) for source in op.inputs]
            if op.type == "NetOutput":
                for position, (value, description) in enumerate(zip(taken, op.proto.input_desc, strict=True)):
                    assert value is not None
                    if value.dtype != _PROTO[description.dtype]:
                        raise GeError(f"output {position} is {value.dtype}, not {_PROTO[description.dtype]}")
                    outputs.append(value)
                continue
            try:
                values[op.name] = OPERATORS[op.type](op, *taken)
            except Exception as error:
                raise GeError(f"{op.type} `{op.name}`: {type(error).__name__}: {error}") from error
        return outputs


def _output(values: dict[str, Any], source: tuple[str, int]) -> Tensor:
    value = values[source[0]]
    return value[source[1]] if isinstance(value, (tuple, list)) else value


def _constant(op: Operator) -> Tensor:
    if op.type == "FileConstant":
        dtype = DTYPES[op.int("dtype")]
        raw = Path(op.text("file_path")).read_bytes()
        return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(op.ints("shape"))
    tensor = op.proto.attr["value"].t
    dtype, sizes = _PROTO[tensor.desc.dtype], list(tensor.desc.shape.dim)
    raw = io.BytesIO(tensor.data).getvalue()
    if not raw:
        return torch.empty(sizes, dtype=dtype)
    flat = torch.frombuffer(bytearray(raw), dtype=dtype)
    count = 1
    for size in sizes:
        count *= size
    return flat[:count].reshape(sizes)


def _ordered(operators: list[Operator]) -> list[Operator]:
    """Sort by data and control edges, else in the order given."""
    by_name = {op.name: op for op in operators}
    done: set[str] = set()
    result: list[Operator] = []
    for first in operators:
        pending = [first]
        while pending:
            op = pending[-1]
            if op.name in done:
                pending.pop()
                continue
            before = [source[0] for source in op.inputs if source is not None] + op.controls
            missing = [by_name[name] for name in before if name not in done]
            if missing:
                pending.extend(missing)
            else:
                done.add(op.name)
                result.append(op)
                pending.pop()
    return result
