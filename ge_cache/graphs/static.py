"""Record the ATen graph of one gear from a capture.

The captured graph keeps Python-level operations and symbolic sizes. For a gear it is run once under fake tensors of the
gear's sizes and recorded as ATen operations, so every shape decision below the method (broadcast, contiguity, choice of
attention kernel) is made anew at the true sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct, field
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.capture.unwrapped import noting_code
from gearcache.ge_cache.compile_job import GearInput
from gearcache.ge_cache.dependencies.custom_operators import record_expanded
from gearcache.ge_cache.graphs import inference_regions
from gearcache.ge_cache.graphs.arguments import draws_nothing, given_arguments, written_arguments
from gearcache.ge_cache.graphs.autocast import check_autocast
from gearcache.ge_cache.graphs.number_inputs import GearSymbols, NumberRow, number_rows
from gearcache.ge_cache.graphs.results import Result, ResultPlan, detached_outputs, placed_outputs, placed_reads
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import nodes as private_nodes
from gearcache.ge_cache.private_torch.nodes import kernels_restored_after_a_failure
from gearcache.torch_state import autocast_devices


def _empty(spec: GearInput) -> torch.Tensor:
    return torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype, device=spec.device)


#: A float as the graph takes it.
FLOAT = GearInput((1,), (1,), torch.float64, torch.device("cpu"))


class GearGraph(Struct):
    """The ATen graph of one gear: placeholders are the inputs, then the attributes, in order."""

    module: fx.GraphModule
    inputs: list[GearInput]
    attributes: dict[str, GearInput]
    results: list[Result]
    written_inputs: list[int] = field(default_factory=list)
    written_attributes: list[str] = field(default_factory=list)
    random_operators: list[str] = field(default_factory=list)
    #: Names of the operators that read an input or a weight at a given offset of its storage.
    placed_reads: list[str] = field(default_factory=list)
    #: For a graph with dynamic dims: `sizes` and `strides` per input, and `hints` per symbol.
    symbols: dict[str, Any] = field(default_factory=dict)
    #: Names of the operators outside torch, including those that were decomposed.
    operators: list[str] = field(default_factory=list)
    #: `[output, on]`: compiled outputs that the method makes with inference mode on, or off, by itself.
    regions: list[list[Any]] = field(default_factory=list)
    #: The numbers that it takes, the last placeholders until `order_inputs`; see `graphs.number_inputs`.
    numbers: list[NumberRow] = field(default_factory=list)
    #: How many floats it takes, before the ints; `order_inputs` makes them inputs.
    floats: int = 0
    #: Conditions on the numbers, besides the call checks.
    conditions: list[str] = field(default_factory=list)


def lift_attributes(capture: Capture) -> fx.GraphModule:
    """Return the captured graph with its attributes as trailing placeholders, in `attributes` order, then its numbers.

    A float arrives as a tensor of float64, and is read from it as Python's `float`: so compiled code takes it too.

    Tensors that belong to no module (constants that Dynamo made) stay attributes and are recorded as constants. Nodes
    that set modes of autograd are removed; begin and end of regions of inference mode are marked. `CaptureError` for
    transforms that need autograd, and for what saves memory for it.
    """
    if derivatives := private_nodes.transforms_of(capture.module.graph) - {"torch.vmap"}:
        names = ", ".join(f"`{name}`" for name in sorted(derivatives))
        raise CaptureError(capture.method, f"it goes through {names}, which need autograd: `torch.vmap` does not")
    if any(map(private_nodes.saves_memory_for_backward, capture.module.graph.nodes)):
        raise CaptureError(
            capture.method,
            "it uses `torch.utils.checkpoint`, which saves memory for a backward pass: call the function itself when "
            "serving",
        )
    graph = fx.Graph()
    mapping: dict[fx.Node, fx.Node] = {}
    for node in tensor_placeholders(capture):
        mapping[node] = graph.placeholder(node.name)
    lifted = {name: graph.placeholder(f"attribute_{number}") for number, name in enumerate(capture.attributes)}
    for number, node in enumerate(capture.numbers.graph_floats):
        mapping[node] = graph.call_method("item", (graph.placeholder(f"float_{number}"),))
    for number, node in enumerate(capture.numbers.nodes):
        mapping[node] = graph.placeholder(f"number_{number}")
    for node in capture.module.graph.nodes:
        if node in mapping:
            continue
        if node.op == "get_attr" and node.target in lifted:
            mapping[node] = lifted[str(node.target)]
        elif node.op != "placeholder" and not private_nodes.is_grad_switch(node):
            mapping[node] = graph.node_copy(node, lambda source: mapping[source])
            if private_nodes.enters_inference_mode(node):
                mapping[node].target = inference_regions.begin
            elif private_nodes.leaves_inference_mode(node):
                mapping[node].target = inference_regions.end
    lifted_module = fx.GraphModule(capture.module, graph)
    lifted_module.meta.update(capture.module.meta)
    return lifted_module


def tensor_placeholders(capture: Capture) -> list[fx.Node]:
    """Return the placeholders of a captured graph except those of ints."""
    placeholders = [node for node in capture.module.graph.nodes if node.op == "placeholder"]
    return [node for node in placeholders if isinstance(node.meta["example_value"], torch.Tensor)]


def input_specs(capture: Capture, assignment: Mapping[Any, int]) -> list[GearInput]:
    """Return the sizes of the inputs under one assignment of the symbols."""
    symbols = capture.symbols()
    return [
        GearInput(
            tuple(symbols.value(size, assignment) for size in item.sizes),
            tuple(symbols.value(stride, assignment) for stride in item.strides),
            item.dtype,
            item.device,
        )
        for item in capture.inputs
    ]


def gear_symbols(capture: Capture, assignment: Mapping[Any, int]) -> GearSymbols | None:
    """Return the symbolic values in the graph of a gear; None where it has none."""
    symbols = capture.symbols()
    if not capture.numbers and not capture.open_symbols(symbols, assignment):
        return None
    return GearSymbols(capture, symbols, assignment)


def float_tensors(capture: Capture, mode: Any) -> list[torch.Tensor]:
    """Return a fake tensor for each float that the graph takes."""
    with mode:
        return [_empty(FLOAT) for _ in capture.numbers.graph_floats]


def trace_gear(
    capture: Capture,
    lifted: fx.GraphModule,
    decompositions: Mapping[Any, Any] | None,
    assignment: Mapping[Any, int],
) -> GearGraph:
    """Record the ATen operations of one gear, at the symbol values of `assignment`; open symbols stay symbolic."""
    inputs, symbolic = input_specs(capture, assignment), gear_symbols(capture, assignment)
    # Numbers that the method takes out of tensors (`.item()`) are symbols, also beside sizes that are all known.
    mode = private_fake.fake_mode(private_fake.shape_env()) if symbolic is None else symbolic.mode
    with mode:
        fakes = [
            _empty(spec) if symbolic is None else symbolic.tensor(item)
            for item, spec in zip(capture.inputs, inputs, strict=True)
        ]
    attributes, specs = attribute_inputs(capture, mode)
    plain, values = (int, []) if symbolic is None else (symbolic.plain, symbolic.values)
    values = [*float_tensors(capture, mode), *values]
    graph = record(capture, lifted, mode, fakes, attributes, decompositions, plain, values)
    if symbolic is not None:
        graph.numbers, graph.conditions = number_rows(capture), symbolic.conditions(graph.module.graph)
    graph.floats = len(capture.numbers.graph_floats)
    private_fake.forget_tensors(mode)
    graph.inputs, graph.attributes = inputs, specs
    return graph


def attribute_inputs(capture: Capture, mode: Any) -> tuple[dict[str, torch.Tensor], dict[str, GearInput]]:
    """Return fake tensors of the weights that a graph takes, and what compilers are told of them, by name."""
    tensors = {name: capture.attribute_tensors[name] for name in capture.attributes}
    specs = {
        name: GearInput(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)
        for name, tensor in tensors.items()
    }
    return {name: private_fake.with_own_memory(mode, tensor) for name, tensor in tensors.items()}, specs


def record(
    capture: Capture,
    lifted: fx.GraphModule,
    mode: Any,
    inputs: list[torch.Tensor],
    attributes: dict[str, torch.Tensor],
    decompositions: Mapping[Any, Any] | None,
    number: Any,
    numbers: Sequence[Any] = (),
) -> GearGraph:
    """Run `lifted` on fake tensors of `mode` and record it; `number` turns a size into an int or an expression.

    `numbers` are the values of the numbers that it takes, symbolic ones or ints.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    method = capture.method
    outputs: list[Any] = []
    tensors = [*inputs, *attributes.values()]
    arguments = [*tensors, *numbers]
    versions = [tensor._version for tensor in tensors]

    def run(*tensors: Any) -> list[Any]:
        outputs.clear()
        outputs.extend(lifted.forward(*tensors))  # not a call: global hooks are not meant for this module
        return [value for value in outputs if isinstance(value, torch.Tensor)]

    def recorded(table: dict[Any, Any], pre_dispatch: bool) -> fx.GraphModule:
        with mode, torch.no_grad(), kernels_restored_after_a_failure(), noting_code(lifted):
            tracer = make_fx(run, decomposition_table=table, _allow_non_fake_inputs=True, pre_dispatch=pre_dispatch)
            return tracer(*arguments)

    try:
        module, operators = record_expanded(recorded, lifted, decompositions, not _is_seen_after_dispatch(lifted))
        check_autocast(method, lifted, module)
    except CaptureError:
        raise
    except Exception as error:
        cause = f"its graph cannot be traced at these sizes: {type(error).__name__}: {error}"
        raise CaptureError(method, cause) from error
    plan = ResultPlan(method, number, rebuilds_views=capture.is_compiled)
    try:
        plan.plan(outputs, inputs, attributes, detached_outputs(module, outputs), placed_outputs(module, outputs))
    except CaptureError:
        raise
    except Exception as error:  # torch refuses to compare sizes that depend on values
        cause = f"its results have sizes that depend on values: {str(error).partition('  (')[0]}"
        raise CaptureError(method, cause) from error
    with mode, torch.no_grad(), kernels_restored_after_a_failure():
        regions = inference_regions.regions_of_outputs(lifted, arguments)
    _keep_outputs(module, outputs, plan.compiled)
    written_by_others = _written_by_others(module)
    written_flags = [
        tensor._version != version or private_core.storage_key(tensor) in written_by_others
        for tensor, version in zip(tensors, versions, strict=True)
    ]
    names = list(attributes)
    return GearGraph(
        module=module,
        inputs=[],
        attributes={},
        results=plan.results,
        written_inputs=[index for index in range(len(inputs)) if written_flags[index]],
        written_attributes=[names[index] for index in range(len(names)) if written_flags[len(inputs) + index]],
        random_operators=_random_operators(module),
        placed_reads=placed_reads(module),
        operators=operators,
        regions=[
            [position, regions[index]]
            for position, index in enumerate(plan.compiled)
            if regions and regions[index] is not None
        ],
    )


def _is_seen_after_dispatch(module: fx.GraphModule) -> bool:
    """Return whether parts of a graph show only after dispatch: casts, `torch.vmap`, chosen kernels of attention."""
    regions = any(
        private_nodes.enters_autocast(node) or private_nodes.chooses_attention(node) for node in module.graph.nodes
    )
    return regions or bool(autocast_devices()) or bool(private_nodes.transforms_of(module.graph))


def order_inputs(graph: GearGraph) -> None:
    """Put the attributes that the graph writes after its inputs, before the numbers: every call reads them anew."""
    placeholders = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
    count = len(graph.inputs)
    names = list(graph.attributes)
    written_nodes = [placeholders[count + names.index(name)] for name in graph.written_attributes]
    numbers = placeholders[len(placeholders) - len(graph.numbers) - graph.floats :]
    constants = [node for node in placeholders[count:] if node not in written_nodes and node not in numbers]
    ordered = [*placeholders[:count], *written_nodes, *numbers, *constants]
    for previous, node in itertools.pairwise(ordered):
        previous.append(node)
    position: dict[str, int] = {}
    for name in graph.written_attributes:
        position[name] = len(graph.inputs)
        graph.written_inputs.append(position[name])
        graph.inputs.append(graph.attributes.pop(name))
    for form in graph.results:
        if form[0] in ("attribute", "attribute_view") and form[1] in position:
            form[0], form[1] = form[0].replace("attribute", "input"), position[form[1]]
    graph.module.recompile()


def _keep_outputs(module: fx.GraphModule, outputs: list[Any], compiled: list[int]) -> None:
    """Leave only the compiled outputs in the graph."""
    position: dict[int, int] = {}
    for index, value in enumerate(outputs):
        if isinstance(value, torch.Tensor):
            position[index] = len(position)
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    returned = output.args[0]
    output.args = ([returned[position[index]] for index in compiled],)
    module.recompile()


def _written_by_others(module: fx.GraphModule) -> set[int]:
    """Return the storages that operators beside ATen's write: these need not raise the version of a tensor."""
    nodes = [node for node in module.graph.nodes if getattr(node.target, "namespace", "aten") != "aten"]
    values = [argument.meta.get("val") for node in nodes for argument in written_arguments(node)]
    return {private_core.storage_key(value) for value in values if isinstance(value, torch.Tensor)}


def _random_operators(module: fx.GraphModule) -> list[str]:
    """Return the names of operators that draw random numbers."""
    names = set()
    for node in module.graph.nodes:
        if private_nodes.is_random_operator(node):
            defaults = {each.name: each.default_value for each in node.target._schema.arguments}
            if not draws_nothing(defaults | given_arguments(node)):
                names.add(str(node.target))
    return sorted(names)
