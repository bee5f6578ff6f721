"""A graph as a program: parts that are compiled once each, and steps that run them in order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec import Struct, field
from torch import fx

from gearcache.ge_cache.graphs.operations import Operations
from gearcache.ge_cache.graphs.repeats import externals_of, outputs_of
from gearcache.ge_cache.graphs.stretch import Stretch


class ProgramPart(Struct):
    """Consecutive operations: a module whose weights are buffers, and tensors like its inputs and outputs."""

    module: fx.GraphModule
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    #: Names of its weights, as in the first step that runs it.
    weights: list[str]


class PartRun(Struct):
    """One run of a part. Values are numbered: the inputs of the graph first, then results of steps."""

    part: int
    inputs: list[int]
    #: For each weight of the part, the weight used in this step.
    weights: dict[str, str]
    #: -1 for an unused output.
    outputs: list[int]


class Program(Struct):
    """The compiled form of a graph with repeats."""

    inputs: int
    parts: list[ProgramPart] = field(default_factory=list)
    steps: list[PartRun] = field(default_factory=list)
    #: The values that the graph returns.
    outputs: list[int] = field(default_factory=list)
    values: int = 0


def make_program(module: fx.GraphModule, count: int, operations: Operations, parts: Sequence[Stretch]) -> Program:
    """Return the program of a graph of `count` inputs whose weights are attributes; it may not return one."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    numbers = {node: number for number, node in enumerate(placeholders)}
    program = Program(count, values=count)
    for stretch in parts:
        offsets = outputs_of(operations, stretch)
        if not offsets and not _acts(operations, stretch):
            continue
        program.parts.append(_part(module, operations, stretch, offsets))
        first_weights = _weights(operations, stretch.start, stretch.length)
        for begin in stretch.begins():
            externals = externals_of(operations, begin, stretch.length)
            step = PartRun(
                part=len(program.parts) - 1,
                inputs=[numbers[node] for node in externals if node.op != "get_attr"],
                weights=dict(zip(first_weights, _weights(operations, begin, stretch.length), strict=True)),
                outputs=[],
            )
            for offset in offsets:
                node = operations.calls[begin + offset]
                if operations.is_used_outside(begin + offset, begin, begin + stretch.length):
                    numbers[node] = program.values
                    step.outputs.append(program.values)
                    program.values += 1
                else:
                    step.outputs.append(-1)
            program.steps.append(step)
    if not all(isinstance(node, fx.Node) and node in numbers for node in output.args[0]):
        raise ValueError("the graph returns a weight or a constant")
    program.outputs = [numbers[node] for node in output.args[0]]
    return program


def _weights(operations: Operations, begin: int, length: int) -> list[str]:
    return [str(node.target) for node in externals_of(operations, begin, length) if node in operations.weights]


def _acts(operations: Operations, stretch: Stretch) -> bool:
    """Return whether operations have side effects: they write, or check something."""
    return any(node.is_impure() for node in operations.calls[stretch.start : stretch.start + stretch.length])


def _part(module: fx.GraphModule, operations: Operations, stretch: Stretch, offsets: Sequence[int]) -> ProgramPart:
    """Return the operations of the first repeat as a module of their own."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs: list[torch.Tensor] = []
    externals = externals_of(operations, stretch.start, stretch.length)
    for node in externals:
        if node.op != "get_attr":
            copies[node] = graph.placeholder(f"value_{len(inputs)}")
            inputs.append(_like(node.meta["val"]))
    root = torch.nn.Module()
    for node in externals:
        if node.op == "get_attr":
            root.register_buffer(str(node.target), module.get_buffer(str(node.target)))
            copies[node] = graph.get_attr(str(node.target))
    nodes = operations.calls[stretch.start : stretch.start + stretch.length]
    for node in nodes:
        copies[node] = graph.node_copy(node, lambda source: copies[source])
        copies[node].meta = {}
    graph.output([copies[nodes[offset]] for offset in offsets])
    return ProgramPart(
        fx.GraphModule(root, graph),
        inputs,
        [nodes[offset].meta["val"] for offset in offsets],
        _weights(operations, stretch.start, stretch.length),
    )


def _like(fake: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
