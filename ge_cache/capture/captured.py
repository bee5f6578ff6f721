"""The result of one Dynamo run over a method: graph, frame, inputs, symbols and checks."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.ge_cache.capture.numbers import Numbers
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.capture.written import Written
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check


class CapturedInput(Struct, frozen=True):
    """One tensor input of the graph. `sizes` and `strides` are ints or sympy expressions of the symbols."""

    access: Access
    node_name: str
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    example: torch.Tensor
    #: Whether the graph computes with its values, rather than only with its sizes.
    computed: bool


class Capture(Struct):
    """The result of one Dynamo run over a method."""

    method: str
    module: torch.fx.GraphModule
    inputs: list[CapturedInput]
    attributes: dict[str, Access]
    attribute_tensors: dict[str, torch.Tensor]
    shape_env: Any
    frame_code: types.CodeType
    graph_name: str
    imports: dict[str, str]
    #: Other globals that Dynamo created for the frame.
    installed: dict[str, Any]
    checks: list[Check]
    #: Conditions on tensors for every call, wherever they are stored, besides the comparison of the inputs.
    tensor_checks: list[Check]
    written: Written
    #: Dynamo's names of the weights that the trace bound although the frame changes an object on their path.
    misbound: list[str] = field(default_factory=list)
    frame_globals: dict[str, Any] = field(default_factory=dict)
    #: The size in the traced call of each symbol that the trace has no value for (`mark_unbacked`).
    unbacked: dict[Any, int] = field(default_factory=dict)
    #: Traced code that no check of `checks` compares: its files are hashed.
    traced_code: list[types.CodeType] = field(default_factory=list)
    #: Whether the trace depends on grad mode.
    asks_grad_mode: bool = False
    numbers: Numbers = field(default_factory=Numbers)
    #: Paths of ints that should be numbers and cannot be, as far as known; and the reason, empty where there are none.
    constants: frozenset[Access] = frozenset()
    constants_because: str = ""
    #: Ints, floats and sizes that vary whose value the trace needed: path -> the line that needed it, in words.
    needed: dict[str, str] = field(default_factory=dict)
    #: Why sizes are static in it that could vary: the cause of the failure with symbols; "" if none failed.
    static_because: str = ""
    #: Effects of the method that the graph leaves out: its messages to loggers.
    left_out: list[str] = field(default_factory=list)
    #: The path of each number, by symbol.
    number_accesses: dict[Any, Access] = field(default_factory=dict)
    #: Paths of ints that the trace fixed although the frame writes them.
    written_ints: list[Access] = field(default_factory=list)
    #: Paths of modules of the instance that the trace did not reach, see `capture.capture`; None if unknown.
    unreached: list[str] | None = None
    #: The graph that `graphs.dynamic.check_numbers` recorded, with its printer; the first gear of these sizes takes it.
    recorded: tuple[Any, Any] | None = None
    #: Whether a compiler makes the results, which then share no memory; other graphs give views of results themselves.
    is_compiled: bool = True
    #: Drops the weak references that Dynamo keeps to the tensors of the call and the module.
    drop_references: Callable[[], None] = lambda: None

    #: Dims, by path, that stay dynamic besides gears.
    open_dims: frozenset[tuple[str, int]] = frozenset()

    def open_symbols(self, symbols: Symbols, assignment: Mapping[Any, int]) -> set[Any]:
        """Return the symbols of sizes that stay symbolic at a gear."""
        size_symbols: set[Any] = set()
        for item in self.inputs:
            for dim, size in enumerate(item.sizes):
                if (item.access.text, dim) in self.open_dims:
                    size_symbols |= symbols.symbols_of(size)
        return size_symbols - set(assignment) - set(self.numbers.symbols)

    def symbols(self) -> Symbols:
        """Return the symbols of the sizes."""
        return Symbols(self.shape_env, self.unbacked, self.numbers.symbols, self.numbers.size_conditions)
