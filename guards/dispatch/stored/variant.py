"""A stored variant: one trace of a method with its gears, to plain data and back.

Nothing here executes: `guards.dispatch.frame`, `guards.dispatch.function` and `guards.dispatch.graph_call` make frames,
checks and results runnable.
"""

from __future__ import annotations

from typing import Any

import torch
from msgspec import Struct, field
from msgspec.structs import asdict

from gearcache.guards.access import TENSOR_DICTIONARIES, Access
from gearcache.guards.evidence.checks import Check


class StoredInput(Struct, frozen=True):
    """One tensor input of the graph; `in_frame` means that the frame passes it, otherwise the graph call reads it.

    `computed` is false for an input where the trace only read facts such as sizes: the graph does not use its values.
    """

    access: Access
    dtype: torch.dtype
    device: str
    in_frame: bool = True
    computed: bool = True

    @property
    def is_weight(self) -> bool:
        """Return whether it is a parameter or buffer of some module: those may require grad, as bound ones do."""
        return self.access.steps[-2:-1] != () and self.access.steps[-2] in TENSOR_DICTIONARIES

    def to_plain(self) -> list[Any]:
        """Return msgpack-able data."""
        dtype = str(self.dtype).removeprefix("torch.")
        return [self.access.to_plain(), dtype, self.device, self.in_frame, self.computed]

    @staticmethod
    def from_plain(data: Any) -> StoredInput:
        """Inverse of `to_plain`."""
        access, dtype, device, in_frame, computed = data
        return StoredInput(Access.from_plain(access), getattr(torch, dtype), device, in_frame, computed)


class StoredGear(Struct, frozen=True):
    """One compiled graph of a variant. Sizes and strides are per input; `None` marks a dynamic dim."""

    text: str
    sizes: list[list[int | None]]
    strides: list[list[int | None]]
    results: list[list[Any]]
    header: dict[str, Any]
    blobs: dict[str, str]
    written: list[int] = field(default_factory=list)
    #: Input dims `(input, dim)` that were only assumed to follow the gear.
    assumed: list[list[int]] = field(default_factory=list)
    #: For a dynamic graph: each free size and stride, `(name, input, "size" or "stride", dim)`, and the conditions.
    symbols: list[list[Any]] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    #: For a dynamic graph: other sizes and strides that the conditions name, in the same form, and the inputs that must
    #: be contiguous.
    measures: list[list[Any]] = field(default_factory=list)
    contiguous: list[int] = field(default_factory=list)
    #: Whether decorators of the method put it under inference mode.
    in_inference_mode: bool = False
    #: `[output, on]`: outputs of the graph that the method makes with inference mode on, or off, by itself.
    regions: list[list[Any]] = field(default_factory=list)
    #: The process groups that the graph communicates in, in the order of their roles: `[name, ranks]`.
    groups: list[list[Any]] = field(default_factory=list)
    #: Seconds of its compile.
    seconds: float = 0.0

    @property
    def is_dynamic(self) -> bool:
        """Return whether one graph serves many sizes."""
        return bool(self.symbols)

    def to_plain(self) -> dict[str, Any]:
        """Return msgpack-able data."""
        return asdict(self)

    @staticmethod
    def from_plain(data: dict[str, Any]) -> StoredGear:
        """Inverse of `to_plain`."""
        return StoredGear(**data)


class StoredVariant(Struct, frozen=True):
    """One trace: the frame around the graph, what the trace depends on, and its gears."""

    frame: dict[str, Any]
    references: dict[str, list[str]]
    graph_name: str
    inputs: list[StoredInput]
    attributes: dict[str, Access]
    call_checks: list[Check]
    #: A tree of `guards.evidence.tree`, in plain form.
    evidence: list[Any]
    sources: dict[str, Any]
    gears: list[StoredGear]
    #: How calls between gears are padded, see `guards.dispatch.padded_call`; None where they are not.
    padding: dict[str, Any] | None = None
    #: Ints and floats that the frame passes to the graph call, behind the tensors: `[name, access]`; a name begins with
    #: `n` or `f`.
    numbers: list[list[Any]] = field(default_factory=list)
    #: Floats that the graph call computes from these: `[name, source]`.
    computed: list[list[str]] = field(default_factory=list)
    #: Paths of ints, in plain form, for which no graph can serve several values; and the reason.
    constants: list[Any] = field(default_factory=list)
    constants_because: str = ""
    #: Ints, floats and sizes that vary of which the trace needed the value: path -> the line that needed it, in words.
    needed: dict[str, str] = field(default_factory=dict)
    #: Why sizes are static in it that could vary: the cause of the failure with symbols; "" if none failed.
    static_because: str = ""
    #: Number of results that the frame takes from the graph, the same for all gears.
    outputs: int = 0
    #: Requested gears that cannot exist: this trace relates their sizes differently.
    impossible: list[str] = field(default_factory=list)
    #: Requested gears at which the method raises for some ints: `[gear, [[path in plain form, int], …]]`.
    raising: list[list[Any]] = field(default_factory=list)
    #: Messages that the method logs and its graphs do not, in words.
    left_out: list[str] = field(default_factory=list)
    #: Paths of modules of the instance that the trace did not reach, nor any module below them; None if not known.
    unreached: list[str] | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return msgpack-able data."""
        return asdict(self) | {
            "inputs": [item.to_plain() for item in self.inputs],
            "attributes": [[name, access.to_plain()] for name, access in self.attributes.items()],
            "call_checks": [check.to_plain() for check in self.call_checks],
            "gears": [gear.to_plain() for gear in self.gears],
        }
