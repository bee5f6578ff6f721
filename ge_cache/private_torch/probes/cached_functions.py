"""Refuse functions with a `functools.lru_cache` where their cache makes a difference.

Dynamo traces such a function as if it had no cache (torch 2.13). Of one that only computes, the result is the same. But
random numbers would be drawn anew at each call, effects repeated, and changes of what it returned lost.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from msgspec import Struct, field
from torch._dynamo.output_graph import OutputGraph, SubgraphTracer
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables.base import AttributeMutationExisting, ValueMutationExisting, VariableTracker
from torch._dynamo.variables.functions import WrapperUserFunctionVariable

from gearcache.ge_cache.private_torch import nodes as private_nodes
from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.guards.evidence.names import name_of

_CACHED = "which has a cache (`functools.lru_cache`)"
_WAY_OUT = "call it in `__init__`, and keep what it returns as an attribute or a buffer"
probes = Probes()


class _Call(Struct):
    """A call that the trace is in."""

    name: str
    #: Nodes that it adds to the graph, without inputs.
    nodes: dict[Any, None] = field(default_factory=dict)
    #: Tensors from before the call that it computes with, with their versions, by id.
    given: dict[int, tuple[torch.Tensor, int]] = field(default_factory=dict)


class _Calls(Struct):
    """What the trace knows of such functions."""

    #: The calls that it is in, each inside the one before.
    open: list[_Call] = field(default_factory=list)
    #: The tensors that a call made, with their versions at its end, and the function's name.
    tensors: list[tuple[torch.Tensor, int, str]] = field(default_factory=list)
    #: The objects that a call returned, with the function's name, by id.
    objects: dict[int, tuple[Any, str]] = field(default_factory=dict)


@probes.at(WrapperUserFunctionVariable, "call_function")
def called(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Follow a call of a function that has a cache."""
    name = name_of(self.wrapper_obj)
    is_torchs = name.startswith(("torch.", "torch:"))  # they only compute
    if is_torchs or not hasattr(self.wrapper_obj, "cache_info"):
        return original(self, tx, args, kwargs)
    calls, call = trace.state(_Calls), _Call(name)
    drawn = len(tx.output.random_calls)
    calls.open.append(call)
    try:
        result = original(self, tx, args, kwargs)
    finally:
        calls.open.pop()
    if len(tx.output.random_calls) > drawn or any(map(private_nodes.draws, call.nodes)):
        trace.refuse(f"it draws random numbers in `{call.name}`, {_repeated('draw others')}", at_once=True)
    if any(_version(tensor) != version for tensor, version in call.given.values()):
        _refuse_write(trace, call)
    made = [tensor for node in call.nodes for tensor in _tensors(node)]
    calls.tensors += [(tensor, _version(tensor), call.name) for tensor in made]

    def note(variable: Any) -> None:
        if variable.source is None and variable.mutation_type is not None:
            calls.objects[id(variable)] = (variable, call.name)

    VariableTracker.visit(note, result)
    return result


@probes.at(SubgraphTracer, "create_node")
def added_node(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Note a node that a call adds to the graph, and what it takes, before Dynamo computes it."""
    node = original(self, *arguments, **keywords)
    for call in trace.state(_Calls).open:
        given = [taken for taken in node.all_input_nodes if taken not in call.nodes]
        for tensor in itertools.chain.from_iterable(map(_tensors, given)):
            call.given.setdefault(id(tensor), (tensor, _version(tensor)))
        if node.op not in ("placeholder", "get_attr"):
            call.nodes[node] = None
    return node


@probes.at(SideEffects, "check_allowed_side_effect")
def written(trace: Any, original: Any, self: Any, item: Any) -> Any:
    """Refuse a write to an object from outside of a call, and one to what a call returned."""
    calls = trace.state(_Calls)
    if calls.open and isinstance(item.mutation_type, (AttributeMutationExisting, ValueMutationExisting)):
        _refuse_write(trace, calls.open[-1])
    if id(item) in calls.objects:
        _refuse_change(trace, "an object", calls.objects[id(item)][1])
    return original(self, item)


@probes.at(OutputGraph, "compile_subgraph")
def ended(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse a write to a tensor that a call made: the trace ends here."""
    for tensor, version, name in trace.state(_Calls).tensors:
        if _version(tensor) != version:
            _refuse_change(trace, "a tensor", name)
    return original(self, *arguments, **keywords)


def _refuse_write(trace: Any, call: _Call) -> None:
    trace.refuse(f"it writes in `{call.name}` to what is outside of it, {_repeated('write again')}", at_once=True)


def _refuse_change(trace: Any, what: str, name: str) -> None:
    trace.refuse(
        f"it writes to {what} that `{name}` made, {_CACHED}: with a graph, the next call would find nothing of that; "
        "write to a copy",
        at_once=True,
    )


def _repeated(effect: str) -> str:
    return f"{_CACHED}: a graph would {effect} at each call; {_WAY_OUT}"


def _tensors(node: Any) -> list[torch.Tensor]:
    """Return the tensors that a node stands for."""
    value = node.meta.get("example_value")
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return [part for part in parts if isinstance(part, torch.Tensor)]


def _version(tensor: torch.Tensor) -> int:
    """Return a number that each write to the memory of a tensor raises; torch counts none in inference mode."""
    return 0 if tensor.is_inference() else tensor._version
