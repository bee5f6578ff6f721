"""Records the graphs of the gears and makes their compile jobs, while earlier jobs compile."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace

from gearcache.building.digests import job_digest
from gearcache.building.request import BuildRequest
from gearcache.building.trace_units import TraceUnit
from gearcache.errors import CaptureError
from gearcache.ge_cache.aten import encode_graph
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.graphs.all_gears import all_gears_graph
from gearcache.ge_cache.graphs.dynamic import dynamic_gear, taken_graph
from gearcache.ge_cache.graphs.memory_order import reshape_views
from gearcache.ge_cache.graphs.plan import PlannedGear
from gearcache.ge_cache.graphs.static import FLOAT, GearGraph, order_inputs, trace_gear
from gearcache.ge_cache.graphs.tensor_operands import keep_tensor_operands, take_plain_floats
from gearcache.ge_cache.inductor.result_forms import result_forms
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.process_groups import renamed, role, stored_groups
from gearcache.guards.dispatch.stored.variant import StoredGear
from gearcache.guards.evidence.names import a_type, module_of
from gearcache.readable.graph import pack_graph
from gearcache.serving.call.bound_method import INFERENCE_MODE
from gearcache.torch_state import Writes, settings

logger = logging.getLogger("gearcache")


class RecordedGear(Struct, frozen=True):
    """A gear whose graph is recorded: its unit, and the number of the job that compiles it."""

    unit: TraceUnit
    graph: GearGraph
    stored: StoredGear
    job: int


class GearJobs:
    """The compile jobs of one build, made one after the other; records which gears each job serves."""

    def __init__(self, request: BuildRequest, units: Iterable[TraceUnit]) -> None:
        self._request = request
        self._units = units
        self.gears: list[RecordedGear] = []
        #: For each job, its graph in the form for readers.
        self.packed: list[bytes] = []
        #: For each job, the digest of everything that the compiler gets, if it was requested.
        self.digests: list[str] = []

    def __iter__(self) -> Iterator[CompileJob]:
        """Yield a job per gear, or per unit if the backend compiles all gears at once."""
        for unit in self._units:
            yield from self._jobs_of(unit)

    def _jobs_of(self, unit: TraceUnit) -> Iterator[CompileJob]:
        request, gear_count = self._request, len(self.gears)
        unit.check_storable()
        one_graph = request.backend.takes_all_gears and len(unit.gears) > 1
        for text, gear in unit.gears:
            try:
                graph, stored_gear = _record(request, unit, text, gear)
                job = None if one_graph else _job(request, unit.capture, text, graph, stored_gear.groups)
            except CaptureError as error:
                if unit.otherwise is not None and len(self.gears) == gear_count:
                    for replacement in unit.otherwise(error):
                        yield from self._jobs_of(replacement)
                    return
                if unit.own is None or gear is None:
                    raise
                logger.debug("%s: gear %s: %s", unit.capture.method, text, error)
                for replacement in unit.own([gear]):
                    yield from self._jobs_of(replacement)
                continue
            self.gears.append(RecordedGear(unit, graph, stored_gear, len(self.packed)))
            if job is not None:
                yield self._pack(job)
        if one_graph:
            yield self._pack(_all_gears_job(request, unit))

    def text(self, job: int) -> str:
        """Return the text of the gear of a job, of the first one if it serves several."""
        return next(gear.stored.text for gear in self.gears if gear.job == job)

    def _pack(self, job: CompileJob) -> CompileJob:
        self.packed.append(pack_graph(job.graph))
        if self._request.compares:
            self.digests.append(job_digest(job))
        return job


def _record(
    request: BuildRequest, unit: TraceUnit, text: str, gear: PlannedGear | None
) -> tuple[GearGraph, StoredGear]:
    """Return the graph of one gear, and its stored form without the artifact."""
    capture = unit.capture
    _refuse_answering(capture)
    if request.backend.compiles:
        _refuse_indirect(capture, request.backend.name)
    symbols = capture.symbols()
    assignment = gear.assignment if gear is not None else {}
    is_dynamic = any(
        symbols.symbols_of(size) - set(capture.numbers.symbols) for i in capture.inputs for size in i.sizes
    )
    if gear is not None:
        is_dynamic = bool(capture.open_symbols(symbols, assignment))
    if is_dynamic:
        graph, stored_gear = dynamic_gear(
            capture,
            unit.lifted,
            symbols,
            request.decompositions,
            request.spec,
            assignment if gear is not None else None,
        )
        stored_gear = replace(stored_gear, text=text or stored_gear.text, regions=graph.regions)
    else:
        checked = None if assignment else taken_graph(capture, dynamic=False)
        graph = checked[0] if checked else trace_gear(capture, unit.lifted, request.decompositions, assignment)
        stored_gear = None
    unit.add_operators(graph.operators)
    if graph.random_operators and not request.backend.allows_random:
        raise CaptureError(
            capture.method,
            f"it draws random numbers ({', '.join(graph.random_operators)}), which backend "
            f"`{request.backend.name}` would not draw as eager does; use backend='eager' or take them as an argument",
        )
    if graph.placed_reads and request.backend.compiles:
        raise CaptureError(
            capture.method,
            f"it calls {', '.join(graph.placed_reads)} of an input or weight with a storage offset: it counts from the "
            f"begin of the storage, and for backend `{request.backend.name}` from that of the tensor; leave the offset "
            "out, or use backend='eager'",
        )
    order_inputs(graph)
    if not request.backend.compiles:
        take_plain_floats(graph.module.graph, len(graph.inputs), graph.floats)
        reshape_views(graph.module.graph)
    elif not request.backend.is_ge:
        keep_tensor_operands(graph.module.graph)
    graph.module.recompile()
    if stored_gear is not None:
        for spec in graph.inputs[len(stored_gear.sizes) :]:  # buffers that the graph writes
            for rows, numbers in ((stored_gear.sizes, spec.sizes), (stored_gear.strides, spec.strides)):
                rows.append(list(numbers))
        _add_written_buffers(graph)
    else:
        stored_gear = StoredGear(
            text=text or _shapes_text(capture, graph),
            sizes=[list(spec.sizes) for spec in graph.inputs],
            strides=[list(spec.strides) for spec in graph.inputs],
            results=graph.results,
            header={},
            blobs={},
            written=graph.written_inputs,
            assumed=gear.assumed if gear is not None else [],
            regions=graph.regions,
            conditions=graph.conditions,
        )
    groups = stored_groups(capture.method, graph.module.graph) if request.backend.groups_by_role else []
    return graph, replace(stored_gear, in_inference_mode=request.bound.mode == INFERENCE_MODE, groups=groups)


def _refuse_answering(capture: Capture) -> None:
    """Refuse tensors such as quantized weights, whose `linear` is not an operator that a graph could call."""
    for path, tensor in _tensors(capture):
        cls = type(tensor)
        answers = private_core.has_own_dispatch(tensor) and private_core.has_own_functions(cls)
        if answers and not module_of(cls).startswith("torch."):
            raise CaptureError(
                capture.method,
                f"`{path}` is {a_type(tensor)}, a tensor subclass that answers functions of torch itself "
                "(`__torch_function__`): a graph calls the operators below them; run this method without a cache",
            )


def _tensors(capture: Capture) -> list[tuple[str, torch.Tensor]]:
    """Return the weights and inputs of a capture with their paths."""
    weights = [(capture.attributes[name].text, capture.attribute_tensors[name]) for name in capture.attributes]
    return weights + [(item.access.text, item.example) for item in capture.inputs]


def _refuse_indirect(capture: Capture, backend: str) -> None:
    """Refuse tensors whose memory does not hold their values."""
    for path, tensor in _tensors(capture):
        if tensor.is_conj() or tensor.is_neg():
            raise CaptureError(
                capture.method,
                f"`{path}` is conjugated or negated lazily, and compiled code of backend `{backend}` reads its memory; "
                "assign `.resolve_conj().resolve_neg()` of it, or use backend='eager'",
            )
        if private_core.has_own_dispatch(tensor):
            raise CaptureError(
                capture.method,
                f"`{path}` is {a_type(tensor)}, a tensor subclass without memory of its own, to which "
                f"compiled code of backend `{backend}` cannot point; use backend='eager', or an ordinary tensor",
            )


def _all_gears_job(request: BuildRequest, unit: TraceUnit) -> CompileJob:
    """Return the one job whose graph serves all gears of a unit."""
    gears = [gear for _, gear in unit.gears if gear is not None]
    graph = all_gears_graph(unit.capture, unit.lifted, gears, request.decompositions)
    order_inputs(graph)
    _add_written_buffers(graph)
    return _job(request, unit.capture, "; ".join(text for text, _ in unit.gears), graph)


def _add_written_buffers(graph: GearGraph) -> None:
    """Give the buffers that the graph writes, which are inputs now, their rows of sizes and strides."""
    for spec in graph.inputs[len(graph.symbols["sizes"]) :]:
        graph.symbols["sizes"].append(list(spec.sizes))
        graph.symbols["strides"].append(list(spec.strides))


def _shapes_text(capture: Capture, graph: GearGraph) -> str:
    shapes = [
        f"{item.access.text}{tuple(spec.sizes)}" for item, spec in zip(capture.inputs, graph.inputs, strict=False)
    ]
    return ", ".join(shapes[:4]) + (", …" if len(shapes) > 4 else "") or "static"


def _job(
    request: BuildRequest, capture: Capture, text: str, graph: GearGraph, groups: Sequence[Sequence[Any]] = ()
) -> CompileJob:
    """Return the job of one graph. It names process groups by role; `groups` are the groups that have a role."""
    symbols, inputs = dict(graph.symbols), [*graph.inputs, *(graph.floats * [FLOAT])]
    if symbols:
        for name in ("sizes", "strides"):
            symbols[name] = [*symbols[name], *(list(getattr(FLOAT, name)) for _ in range(graph.floats))]
    elif graph.numbers:  # compilers need an environment in which a number is a symbol
        symbols = {name: [list(getattr(spec, name)) for spec in inputs] for name in ("sizes", "strides")}
        symbols["hints"] = []
    if graph.numbers:
        symbols["numbers"] = [list(number_row) for number_row in graph.numbers]
    if settings() != request.settings:  # since before this graph was traced
        Writes.count += 1
    roles = {name: role(number) for number, (name, _) in enumerate(groups)}
    plain = renamed(encode_graph(capture.method, graph.module), roles)
    forms = {"results": result_forms(graph.module)} if request.backend.asks_forms else {}
    return CompileJob(
        method=capture.method,
        gear=text or "static",
        graph=plain | {"symbols": symbols} | forms,
        inputs=inputs,
        attributes=graph.attributes,
        options=dict(request.options),
        threads=request.threads,
        settings=request.settings,
        repeats=request.repeats,
        target=request.backend.target,
        groups=[len(ranks) for _, ranks in groups],
    )
