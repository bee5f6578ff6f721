"""Drop operations from a recorded graph with fake values that only say how memory is used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from gearcache.ge_cache.graphs.arguments import given_arguments, written_arguments
from gearcache.ge_cache.graphs.operations import spec_of
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import fake as private_fake


def give_values(module: fx.GraphModule, arguments: Sequence[torch.Tensor]) -> Any:
    """Run the graph on fakes of some tensors; each node keeps its own as `meta["val"]`. Returns the fake mode."""
    mode = private_fake.fake_mode()
    fakes = [private_fake.with_own_memory(mode, argument) for argument in arguments]
    with mode, torch.no_grad():
        _Recorder(module).run(*fakes)
    return mode


class _Recorder(fx.Interpreter):
    """Keeps the result of each node."""

    def run_node(self, n: fx.Node) -> Any:
        # Without autograd there is nothing to detach, and fakes of constants refuse it.
        detaches = n.target is torch.ops.aten.detach_.default
        n.meta["val"] = n.args[0].meta["val"] if detaches else super().run_node(n)  # type: ignore[union-attr]
        return n.meta["val"]


def drop_aliases(module: fx.GraphModule) -> None:
    """Replace uses of a result that is its own argument (`x.to(x.dtype)`, `x.add_(y)`) by uses of the argument."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        for argument in node.all_input_nodes:
            if _may_return(node, argument) and _is_same(node.meta["val"], argument.meta["val"]):
                # The plan of the results handles an input that the graph returns.
                graph_output = output if argument.op != "call_function" else None
                node.replace_all_uses_with(argument, delete_user_cb=lambda user: user is not graph_output)  # noqa: B023
                if not node.users and not node.is_impure():
                    module.graph.erase_node(node)
                break


def write_anew(module: fx.GraphModule, mode: Any) -> None:
    """Replace operations that write a tensor made by the graph itself (`x += y`) by ones that make a new tensor.

    Only where no other tensor shares its memory: later uses take the new tensor, so the results are the same.
    """
    sharing: defaultdict[int, set[fx.Node]] = defaultdict(set)
    for node in module.graph.nodes:
        if node.users and isinstance(node.meta["val"], torch.Tensor):
            sharing[private_core.storage_key(node.meta["val"])].add(node)
    for node in list(module.graph.nodes):
        functional = _functional(node)
        if functional is None or node.users or node.args[0].op != "call_function":
            continue
        written_node = node.args[0]
        if sharing[private_core.storage_key(written_node.meta["val"])] != {written_node}:
            continue
        with mode, torch.no_grad():
            positional, keyword = fx.node.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
            value = functional(*positional, **keyword)
        if spec_of(value) != spec_of(written_node.meta["val"]):
            continue  # the new tensor would have another dtype, or other strides
        with module.graph.inserting_before(node):
            new_node = module.graph.call_function(functional, node.args, node.kwargs)
        new_node.meta = {**node.meta, "val": value}
        later = _behind(node)
        written_node.replace_all_uses_with(new_node, delete_user_cb=later.__contains__)
        module.graph.erase_node(node)
        sharing[private_core.storage_key(value)] = {new_node}


def _functional(node: fx.Node) -> Any:
    """Return the functional form of an operator that writes its first argument; None where it has none."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable or len(list(written_arguments(node))) != 1:
        return None
    written_alias = schema.arguments[0].alias_info
    namespace, _, name = schema.name.partition("::")
    if namespace != "aten" or written_alias is None or not written_alias.is_write or not name.endswith("_"):
        return None
    if not isinstance(node.args[0], fx.Node):
        return None
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    operator = getattr(packet, node.target._overloadname or "default", None)  # type: ignore[union-attr]
    if operator is None:
        return None
    functional_schema = operator._schema
    is_alike = [item.name for item in functional_schema.arguments] == [item.name for item in schema.arguments]
    shares = any(item.alias_info is not None for item in [*functional_schema.arguments, *functional_schema.returns])
    return operator if is_alike and not shares else None


def _behind(node: fx.Node) -> set[fx.Node]:
    later_nodes = set()
    while node.op != "output":
        node = node.next
        later_nodes.add(node)
    return later_nodes


def _may_return(node: fx.Node, source: fx.Node) -> bool:
    """Return whether a torch operator's schema allows it to return an argument itself; fakes alone prove nothing."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.name.startswith("aten::") or len(schema.returns) != 1:
        return False
    returned = schema.returns[0].alias_info
    if returned is None:
        return False
    arguments = given_arguments(node)
    for argument in schema.arguments:
        if arguments.get(argument.name) is source:
            return argument.alias_info is not None and argument.alias_info.before_set == returned.before_set
    return False


def _is_same(left: Any, right: Any) -> bool:
    """Whether two tensors are the same numbers in the same memory."""
    if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
        return False
    return (
        spec_of(left) == spec_of(right)
        and private_core.storage_key(left) == private_core.storage_key(right)
        and left.storage_offset() == right.storage_offset()
    )
