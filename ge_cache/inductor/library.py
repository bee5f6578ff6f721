"""Build one shared object with AOTInductor: takes seconds to minutes and a C++ compiler.

The weights stay outside, as attributes whose tensors are uninitialised: nothing here may depend on their values.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from msgspec import msgpack

from gearcache.ge_cache.aten import decode_tensor, encode_tensor, to_module
from gearcache.ge_cache.backend import Artifact, Stage
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.dependencies.custom_operators import custom_operators
from gearcache.ge_cache.graphs.examples import symbolic_examples
from gearcache.ge_cache.inductor.artifact_names import CONSTANTS, EXTERN, LIBRARY
from gearcache.ge_cache.inductor.groups import place
from gearcache.ge_cache.inductor.headers import SharedHeaders
from gearcache.ge_cache.inductor.options import compile_options, vectors_for
from gearcache.ge_cache.inductor.repeated import Built, build_repeats, keeping_constants
from gearcache.ge_cache.inductor.runtime import Link, make_linked
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.ge_cache.private_torch.codegen import inductor as private_inductor
from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource, Lowered, Make, headers_meanwhile
from gearcache.ge_cache.private_torch.jobs import acted_groups
from gearcache.ge_cache.process_groups import renamed, role
from gearcache.guards.gears.expressions import checked_expression

#: Operators whose results are numbers, or have sizes, that only the values of a call determine.
_VALUE_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def build_library(job: CompileJob, stage: Stage, link: Link = make_linked) -> Artifact:
    """Return the shared object of a gear, stripped, and the weight or constant behind each of its constants."""
    constants = {name: decode_tensor(plain) for name, plain in job.graph["constants"].items()}
    places = {place(number): size for number, size in enumerate(job.groups)}
    module = to_module(renamed(job.graph, {role(number): place(number) for number in range(len(places))}), constants)
    if replaced := private_inductor.replaced(custom_operators(module)):
        raise RuntimeError(
            f"the operator {replaced[0]} has a decomposition or lowering that was registered with Inductor, whose "
            "change no later process would see; give it to cache_compile as one of `custom_decompositions`"
        )
    names = _attach_attributes(module, job)
    inputs, symbolic = _inputs(job, module)
    with acted_groups(places):
        build = _build(module, inputs, list(names.values()), job, stage, link, is_static=symbolic is None)
    library, folded = build.library, constants | build.constants
    _strip(library)
    data, extern = library.read_bytes(), library.with_suffix(".json")
    if library.with_name("custom_objs_config.json").exists():
        raise RuntimeError("AOTInductor made a graph that calls script objects, which cannot be stored")
    runner = private_core.aoti_runner(str(library))
    attribute_of = {attached: name for name, attached in names.items()}
    bound: dict[str, list[str]] = {}
    for internal, original in runner.get_constant_names_to_original_fqns().items():
        if original in attribute_of:
            bound[internal] = ["attribute", attribute_of[original]]
        elif original in folded:
            bound[internal] = ["constant", original]
        else:
            raise RuntimeError(f"AOTInductor made the constant `{original}`, whose value is not known")
    used_constants = sorted(name for kind, name in bound.values() if kind == "constant")
    blobs = {LIBRARY: data}
    if used_constants:
        blobs[CONSTANTS] = msgpack.encode({name: encode_tensor(folded[name]) for name in used_constants})
    if extern.exists():
        blobs[EXTERN] = extern.read_bytes()
    conditions = [checked_expression(text) for text in symbolic.assumptions()] if symbolic is not None else []
    return Artifact({"bound": bound, "extern": EXTERN in blobs, **build.header}, blobs, conditions)


def _build(
    module: torch.fx.GraphModule,
    inputs: list[torch.Tensor],
    attached: list[str],
    job: CompileJob,
    stage: Stage,
    link: Link,
    *,
    is_static: bool,
) -> Built:
    """Return the object of a graph, in parts where operations repeat; the attributes `attached` are its weights."""
    specs = [*job.inputs, *job.attributes.values()]
    outcome: Built | str = ""
    if job.repeats and is_static and all(spec.device.type == "cpu" for spec in specs):
        copied = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
        outcome = build_repeats(copied, inputs, attached, job, stage, linker_flags(), link)
    if isinstance(outcome, Built):
        return outcome
    weights = {name: module.get_buffer(name) for name in attached}
    folded: dict[str, torch.Tensor] = {}
    stage("lower")
    with torch.no_grad():
        library = private_inductor.inductor_compile(
            module,
            inputs,
            compile_options(job),
            keeping_constants(weights, folded, stage, job.target, job.graph.get("results", ())),
            linker_flags(),
            list(weights.values()),
            lambda make, lowered: link(make, _checked(lowered)),
            vectors_for(job),
        )
    return Built(Path(library), folded, {"whole": outcome} if outcome else {})


def _checked(lowered: Lowered) -> CppSource:
    """Return what Inductor has written; `RuntimeError` where it returns an input, of which the trace makes a copy."""
    if lowered.returned_inputs:
        raise RuntimeError(
            f"Inductor returns an input as the result {lowered.returned_inputs[0]}, which must be a copy"
        )
    return lowered.written


def with_headers(headers: SharedHeaders, tell: Callable[[], None]) -> Link:
    """Return a linker of objects whose headers all workers share; `tell` is called before it makes or awaits them."""

    def shared(make: Make, written: CppSource) -> str:
        def build(are_complete: Callable[[], None] | None) -> str:
            if are_complete is None:
                return make(written)
            with headers_meanwhile(are_complete):
                return make(written)

        return headers.build(build, tell)

    return lambda make, written: make_linked(functools.partial(shared, make), written)


def prepare(headers: SharedHeaders, tell: Callable[[], None], threads: int, target: str) -> None:
    """Do what the first compile of every worker needs: lower a graph of one operator, and make headers and runtime.

    The object of that graph is not made.
    """

    def link(make: Make, lowered: Lowered) -> str:
        def build(are_complete: Callable[[], None] | None) -> str:
            if are_complete is not None:
                with contextlib.suppress(_HeadersComplete), headers_meanwhile(_ending(are_complete)):
                    make_linked(make, lowered.written)
            return ""

        return headers.build(build, tell)

    module = torch.fx.symbolic_trace(_Increment())
    job = CompileJob("", "", None, [], {}, {}, threads, target=target)
    with torch.no_grad():
        private_inductor.inductor_compile(
            module, [torch.zeros(64)], compile_options(job), _pass_on, linker_flags(), (), link, vectors_for(job)
        )


class _HeadersComplete(BaseException):
    """Ends a compile whose headers were all that mattered; no error, for which an object would be made otherwise."""


def _ending(are_complete: Callable[[], None]) -> Callable[[], None]:
    def end() -> None:
        are_complete()
        raise _HeadersComplete

    return end


class _Increment(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x + 1,)


def _pass_on(compile_inner: Any, graph: Any, inputs: Any, **keywords: Any) -> Any:
    return compile_inner(graph, inputs, **keywords)


def linker_flags() -> list[str]:
    """Return flags that export only the interface of the object: a third of the time to load it (GNU ld and lld)."""
    if not sys.platform.startswith("linux"):
        return []
    script = Path(__file__).with_name("exports.map")
    return [shlex.quote(f"Wl,--version-script={script}"), "Wl,--gc-sections"]


def _inputs(job: CompileJob, module: torch.fx.GraphModule) -> tuple[list[Any], private_symbols.SymbolicInputs | None]:
    """Return example inputs: symbolic ones for a graph with dynamic dims or numbers, real tensors for any other."""
    symbols = job.graph.get("symbols")
    if not symbols and any(_VALUE_DEPENDENT & set(getattr(node.target, "tags", ())) for node in module.graph.nodes):
        sizes, strides = [spec.sizes for spec in job.inputs], [spec.strides for spec in job.inputs]
        symbols = {"hints": {}, "sizes": sizes, "strides": strides}
    if not symbols:
        examples = [
            torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype, device=spec.device) for spec in job.inputs
        ]
        return examples, None
    tensors, symbolic = symbolic_examples(symbols, job.inputs)
    return [*tensors, *symbolic.numbers.values()], symbolic


def _attach_attributes(module: torch.fx.GraphModule, job: CompileJob) -> dict[str, str]:
    """Turn the trailing placeholders into attributes, so that AOTInductor treats them as constants.

    The tensors are uninitialised and never read: their pages cost no memory.
    """
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"][job.inputs_and_numbers :]
    names = {}
    for number, (node, (name, spec)) in enumerate(zip(placeholders, job.attributes.items(), strict=True)):
        attached = f"weight_{number}"
        tensor = torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype, device=spec.device)
        module.register_buffer(attached, tensor)
        if node.users:
            with module.graph.inserting_before(node):
                replacement = module.graph.get_attr(attached)
            node.replace_all_uses_with(replacement)
        module.graph.erase_node(node)
        names[name] = attached
    module.recompile()
    return names


def _strip(library: Path) -> None:
    """Drop debug information, half of the file, where `strip` exists: less to hash at every load."""
    strip = shutil.which("strip")
    if strip is not None:
        subprocess.run([strip, "--strip-unneeded", str(library)], check=False, capture_output=True)
