"""Build the object of a graph with repeated operations: these are compiled once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct, field, msgpack

from gearcache.ge_cache.backend import Stage
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.graphs.functional import drop_aliases, give_values, write_anew
from gearcache.ge_cache.graphs.operations import Operations
from gearcache.ge_cache.graphs.repeats import Search
from gearcache.ge_cache.inductor.options import compile_options, vectors_for
from gearcache.ge_cache.inductor.portable import check_portable
from gearcache.ge_cache.inductor.program import Program, ProgramPart, make_program
from gearcache.ge_cache.inductor.result_forms import Forms, check_dtypes, form_of, put_in_form
from gearcache.ge_cache.inductor.runtime import Link
from gearcache.ge_cache.inductor.sources import NotMergeable, merged
from gearcache.ge_cache.private_torch.codegen import inductor as private_inductor
from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource, Lowered, Make

logger = logging.getLogger("gearcache")

_MOST_TEXT = 300
_NUMBER = "gearcache number"


class Built(Struct, frozen=True):
    """A shared object, the values of its constants, and what a header says about its build."""

    library: Path
    constants: dict[str, torch.Tensor]
    header: dict[str, Any] = field(default_factory=dict)


def build_repeats(
    module: torch.fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    weights: Sequence[str],
    job: CompileJob,
    stage: Stage,
    linker_flags: Sequence[str],
    link: Link,
) -> Built | str:
    """Return the object of a graph whose weights are attributes; else the reason to compile it as a whole, or "".

    The header records for each repeat its count, its number of operations, the nodes of the graph where the first one
    begins and ends, and where the last one ends.
    """
    stage("search")
    try:
        mode = give_values(module, inputs)
        check_dtypes(module, job.graph.get("results", ()))
        _number(module, job)
        drop_aliases(module)
        write_anew(module, mode)
        attributes = [node for node in module.graph.nodes if node.op == "get_attr"]
        operations = Operations(
            module.graph,
            [node for node in attributes if node.target in weights],
            lambda name: msgpack.encode(job.graph["constants"][name]),
        )
        search = Search(operations)
        stretches = search.stretches()
        repeats = [stretch for stretch in stretches if stretch.count > 1]
        if not repeats:
            return search.refused
        program = make_program(module, len(inputs), operations, stretches)
        library, constants = _Parts(program, job, stage, linker_flags, link).build()
    except Exception as error:  # any error of torch: it may still compile the whole graph
        logger.debug("%s is compiled as a whole", job.method, exc_info=True)
        return f"{type(error).__name__}: {error}"[:_MOST_TEXT]
    rows = []
    for stretch in repeats:
        ends = (stretch.start, stretch.start + stretch.length, stretch.end - 1)
        first_begin, second_begin, last_node = (operations.calls[number].meta[_NUMBER] for number in ends)
        rows.append([stretch.count, stretch.length, first_begin, second_begin, last_node + 1])
    return Built(library, constants, {"repeats": rows})


def _number(module: torch.fx.GraphModule, job: CompileJob) -> None:
    """Note the node of the stored graph for each operation."""
    calls = [number for number, node in enumerate(job.graph["nodes"]) if node[0] == "call"]
    operations = [node for node in module.graph.nodes if node.op == "call_function"]
    for node, number in zip(operations, calls, strict=True):
        node.meta[_NUMBER] = number


def keeping_constants(
    weights: Mapping[str, torch.Tensor],
    constants: dict[str, torch.Tensor],
    stage: Stage,
    target: str,
    forms: Forms,
    prefix: str = "",
) -> Callable[..., Any]:
    """Return a wrapper of Inductor's last stage that keeps the values of attributes that are not weights.

    It refuses a graph whose strides would depend on this CPU instead of the target, and gives the results of other
    graphs the recorded `forms`.
    """

    def inner(compile_inner: Any, graph: Any, example_inputs: Any, **keywords: Any) -> Any:
        check_portable(graph, target)
        put_in_form(graph, forms)
        for node in graph.graph.nodes:
            if node.op == "get_attr" and node.target not in weights:
                value = getattr(graph, node.target)
                if isinstance(value, torch.Tensor):
                    constants[prefix + node.target] = value
        stage("compile")
        return compile_inner(graph, example_inputs, **keywords)

    return inner


class _Parts:
    """The parts of a program, lowered in order; the last one makes the object of all."""

    def __init__(
        self, program: Program, job: CompileJob, stage: Stage, linker_flags: Sequence[str], link: Link
    ) -> None:
        self._program = program
        self._job = job
        self._stage = stage
        self._flags = linker_flags
        self._link = link
        self._sources: list[CppSource] = []
        self._constants = {
            f"part{number}_{name}": value
            for number, part in enumerate(program.parts)
            for name, value in part.module.named_buffers()
            if name not in part.weights
        }

    def build(self) -> tuple[Path, dict[str, torch.Tensor]]:
        library = ""
        for number, part in enumerate(self._program.parts):
            self._stage("lower")
            weights = {name: part.module.get_buffer(name) for name in part.weights}
            with torch.no_grad():
                library = private_inductor.inductor_compile(
                    part.module,
                    part.inputs,
                    compile_options(self._job),
                    keeping_constants(
                        weights,
                        self._constants,
                        self._stage,
                        self._job.target,
                        [form_of(tensor) for tensor in part.outputs],
                        f"part{number}_",
                    ),
                    self._flags,
                    list(weights.values()),
                    self._take,
                    vectors_for(self._job),
                )
        return Path(library), self._constants

    def _take(self, make: Make, lowered: Lowered) -> str:
        part = self._program.parts[len(self._sources)]
        if lowered.calls_back:
            raise NotMergeable("a part calls operators that have no C interface")
        if not _fit(part, lowered.strides):
            raise NotMergeable("a part gives other strides than the next one takes")
        self._sources.append(lowered.written)
        if len(self._sources) < len(self._program.parts):
            return ""
        return self._link(make, merged(self._program, self._sources))


def _fit(part: ProgramPart, strides: list[tuple[int, ...] | None]) -> bool:
    """Return whether a part gives its outputs the strides with which the next one was lowered."""
    if len(strides) != len(part.outputs):
        return False
    for tensor, lowered in zip(part.outputs, strides, strict=True):
        if lowered is None or len(lowered) != tensor.dim():
            return False
        pairs = zip(tensor.shape, tensor.stride(), lowered, strict=True)
        if tensor.numel() and any(size > 1 and stride != lowered_stride for size, stride, lowered_stride in pairs):
            return False
    return True
