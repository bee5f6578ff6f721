"""Find user-defined operators in a graph, and expand those that merely compose other operators.

An operator that is registered for no device, but for `CompositeImplicitAutograd`, is a function over other operators. A
compiler decomposes it, so it is decomposed when the graph is recorded: then all operators that it calls are visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx

from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.evidence.operators import is_outside
from gearcache.guards.evidence.registry import has_kernel

_DEVICES = ("CPU", "CUDA", "PrivateUse1")


def custom_operators(module: fx.GraphModule) -> set[Any]:
    """Return the operators of a graph outside torch, with all overloads where the graph names none."""
    operators: set[Any] = set()
    for node in module.graph.nodes:
        target: Any = node.target
        if isinstance(target, private_core.OpOverloadPacket):
            operators.update(getattr(target, overload) for overload in target.overloads())  # type: ignore[no-untyped-call]
        elif isinstance(target, private_core.OpOverload):
            operators.add(target)
    return {operator for operator in operators if is_outside(operator.name())}


def record_expanded(
    record: Callable[[dict[Any, Any], bool], fx.GraphModule],
    lifted: fx.GraphModule,
    decompositions: Mapping[Any, Any] | None,
    pre_dispatch: bool,
) -> tuple[fx.GraphModule, list[str]]:
    """Return the graph that `record(decompositions, pre_dispatch)` makes, without a user's composite operators.

    The names are those of all user operators seen on the way.
    """
    from gearcache.ge_cache.private_torch.of_turns.dropout import recorded_decompositions  # imports Dynamo

    table = recorded_decompositions(decompositions)
    operators = custom_operators(lifted)
    if operators and not pre_dispatch:
        # After dispatch the composite ones are gone, and their calls cannot be distinguished from the rest.
        operators |= _expand(record, table, operators)
    module = record(table, pre_dispatch)
    module_operators = custom_operators(module)
    operators |= module_operators
    if pre_dispatch and _composite(module_operators, table):
        operators |= _expand(record, table, operators)
        module = record(table, pre_dispatch)
    return module, sorted(operator.name() for operator in operators)


def _expand(record: Callable[..., fx.GraphModule], table: dict[Any, Any], operators: set[Any]) -> set[Any]:
    """Add composite operators to `table` until a graph has no more of them; return all its operators."""
    all_operators = set(operators)
    while composite := _composite(all_operators, table):
        table.update((operator, operator.decompose) for operator in composite)
        all_operators |= custom_operators(record(table, True))
    return all_operators


def _composite(operators: set[Any], table: Mapping[Any, Any]) -> set[Any]:
    return {
        operator
        for operator in operators - table.keys()
        if has_kernel(operator.name(), "CompositeImplicitAutograd")
        and not any(has_kernel(operator.name(), device) for device in _DEVICES)
    }
