"""Dynamo's backend for a capture: keeps the graph, its inputs, and the writes of the frame."""

from __future__ import annotations

from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.computed import ComputedFloats, passed_float
from gearcache.ge_cache.capture.numbers import Numbers, take_numbers
from gearcache.ge_cache.capture.written import Write
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.graphs.tensor_data import take_data
from gearcache.ge_cache.private_torch import shapes as private_shapes
from gearcache.ge_cache.private_torch import under_way as private_under_way
from gearcache.ge_cache.private_torch.nodes import name_powers
from gearcache.guards.evidence.names import a_type, module_of


class GraphHook:
    """Dynamo's backend for the capture: keeps the graph and makes it take tensors only."""

    def __init__(self, log: TraceLog) -> None:
        self._log, self._method = log, log.method
        self.numbers = Numbers()
        self.module: torch.fx.GraphModule | None = None
        self.shape_env: Any = None
        self.graph_name = ""
        self.sources: list[Any] = []
        self.nodes: list[torch.fx.Node] = []
        self.writes: list[Write] = []
        #: Dynamo's source of each tensor that the graph has as an attribute.
        self.attribute_sources: dict[str, Any] = {}

    @property
    def only_computes_floats(self) -> bool:
        """Whether the graph only returns floats, which each call computes without it; they leave it as tensors."""
        assert self.module is not None
        inner = [node for node in self.module.graph.nodes if node.op not in ("placeholder", "output")]
        return bool(inner) and all(node.target in (passed_float, torch.scalar_tensor) for node in inner)

    def __call__(self, module: torch.fx.GraphModule, example_inputs: list[Any]) -> torch.fx.GraphModule:
        self.module = module
        self.shape_env = private_under_way.tracing_context().fake_mode.shape_env
        self.writes = [Write(*write) for write in private_under_way.writes()]
        self.attribute_sources = private_under_way.attribute_sources()
        for entry in private_under_way.tracked_objects():
            self._log.note("tracked", *entry)
        if any(write.attribute is None and _is_namespace(write.owner) for write in self.writes):
            cause = (
                "it writes to the `__dict__` of a module, which holds its globals: keep what changes in the instance"
            )
            raise CaptureError(self._method, cause)
        private_shapes.check_marked_dims()
        self.graph_name = str(module.meta["backend_id"])
        if not private_under_way.forget_unused_streams(module):
            raise CaptureError(self._method, "it works with streams or events, which a static graph cannot honour")
        take_data(self._method, module.graph, self.attribute_sources)
        self.numbers = take_numbers(module.graph, self.shape_env, self._log.state(ComputedFloats))
        for node in reversed(module.graph.nodes):
            if node.target is getattr and not node.users:  # its result is a constant of the trace
                module.graph.erase_node(node)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        tensors = {
            node.meta["grapharg"].source.name: node
            for node in placeholders
            if isinstance(node.meta["example_value"], torch.Tensor)
        }
        last = placeholders[-1] if placeholders else None
        numbers = {*self.numbers.nodes, *self.numbers.float_nodes}
        for node in placeholders:
            if not isinstance(node.meta["example_value"], torch.Tensor) and node not in numbers:
                _replace_size(self._method, module.graph, node, tensors, last)
        self.nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.nodes = [node for node in self.nodes if node not in numbers]
        self.sources = [node.meta["grapharg"].source for node in self.nodes]
        name_powers(module.graph)
        module.recompile()
        return module


def _is_namespace(owner: Any) -> bool:
    return type(owner) is dict and "__builtins__" in owner


def _describe(name: str, value: Any) -> str:
    """Describe an input of a graph that is not a tensor."""
    if module_of(type(value)).startswith("torch.distributed"):
        return (
            f"it computes with distributed tensors (`parallelize_module`, `DTensor`; the graph takes {a_type(value)}): "
            "write the collectives in the method, such as `torch.distributed.all_reduce`"
        )
    return f"the graph takes `{name}`, {a_type(value)}, which is not a tensor"


_SIZE_OPERATORS = {
    "SIZE": torch.ops.aten.sym_size.int,
    "STRIDE": torch.ops.aten.sym_stride.int,
}


def _replace_size(
    method: str,
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    tensors: dict[str, torch.fx.Node],
    last: torch.fx.Node | None,
) -> None:
    source = node.meta["grapharg"].source
    base = getattr(source, "base", None)
    owner = tensors.get(base.name) if base is not None else None
    if owner is None or type(source).__name__ != "TensorPropertySource":
        value = getattr(node.meta["example_value"], "real_obj", node.meta["example_value"])
        raise CaptureError(method, _describe(source.name, value)) from None
    assert last is not None
    if node.users:
        operator = _SIZE_OPERATORS.get(source.prop.name)
        if operator is None:  # graph inputs are not compared by their storage offset
            name = getattr(base, "name", source.name)
            raise CaptureError(method, f"it computes with the storage offset of `{name}`: pass it as an argument")
        arguments = (owner,) if source.idx is None else (owner, source.idx)
        with graph.inserting_after(last):
            size = graph.call_function(operator, arguments)
        size.meta["example_value"] = node.meta["example_value"]
        node.replace_all_uses_with(size)
    graph.erase_node(node)
