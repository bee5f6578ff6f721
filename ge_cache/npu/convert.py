"""Convert a gear's graph to the text that torchair or npugraph_ex generates. A relaunch does not import this module."""

from __future__ import annotations

import ast
import hashlib
import re

from msgspec import msgpack

from gearcache.ge_cache.backend import Artifact, Stage
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.graphs.all_gears import check_assumptions, gear_values
from gearcache.ge_cache.npu.ascend import decompositions, ge_model_class, torch_npu_module
from gearcache.ge_cache.npu.config import NpuOptions
from gearcache.ge_cache.npu.functional import FunctionalGraph, functional_graph
from gearcache.ge_cache.npu.ge_model import READ_FROM, SplitModel, split_model
from gearcache.ge_cache.npu.load import CODE, COMPILED, OPERATORS
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.guards.dispatch.frame import encode_code
from gearcache.guards.dispatch.generated import compiled_text
from gearcache.guards.gears.expressions import checked_expression


def convert(job: CompileJob, options: NpuOptions, stage: Stage) -> Artifact:
    """Convert one gear (or, with `gear_execution="ge"`, all of them) and return the generated text."""
    stage("lower")
    functional = functional_graph(job, decompositions(options.package()))
    stage("compile")
    gears = gear_lists(job)
    owner_count = len(functional.owners)
    for tensor, lists in zip(functional.examples[owner_count:], gears, strict=False):
        if lists:
            tensor.dim_gears = lists
    with private_fake.tracing(functional.mode):
        text = _text(functional, options, owner_count + job.inputs_and_numbers, graph_name(job))
    conditions = functional.symbolic.assumptions() if functional.symbolic is not None else []
    if gears:
        names, values = [name for name, _ in job.graph["symbols"]["hints"]], job.graph["symbols"]["gears"]
        check_assumptions(job.method, conditions, names, values)
        text, conditions = ordered_gears(text, [{}] * owner_count + gears), []
    is_ge = "ge_graph = GeGraph(" in text
    if is_ge and "_is_first_run = True" not in text:
        version = torch_npu_module().__version__
        releases = " and ".join(READ_FROM)
        raise RuntimeError(
            f"the torchair of torch_npu {version} generates text of another form than that of {releases}"
        )
    outputs = len(job.graph["outputs"])
    header = {"ge": is_ge, "outputs": outputs, "copied_back": functional.copied_back}
    header |= {"method": job.method, "owners": functional.owners, "written": functional.written}
    header["groups"] = functional.groups
    header["numbers"] = [hint for _, hint, *_ in job.numbers]
    header["sizes"] = [list(spec.sizes) for spec in job.inputs]
    header["geared"] = [index for index, lists in enumerate(gears) if lists]
    blobs = {CODE: text.encode()}
    if is_ge and (split_text := _split(text)) is not None:
        text, split = split_text
        header["operators"], blobs[OPERATORS] = split.plan, split.others
    compiled = compiled_text(text, "torchair kernel")
    blobs[COMPILED] = msgpack.encode(encode_code(compiled))
    conditions = [checked_expression(item.replace("torch.sym_float", "float")) for item in conditions]
    return Artifact(header, blobs, conditions)


def _text(functional: FunctionalGraph, options: NpuOptions, first_weight: int, name: str) -> str:
    for weight in functional.examples[first_weight:]:
        # They are bound once: GE may assume that their addresses are fixed (`frozen_parameter`), aclgraph captures
        # them.
        weight._torchair_is_parameter = True
    package = options.package()
    if options.is_npugraph_ex:
        compiled = package.compile_fx(functional.module, functional.examples, options.npugraph_ex_options())
    else:
        compiled = package.get_compiler(options.torchair_config())(functional.module, functional.examples)
    counted = str(compiled.runner.graph.name)
    if options.is_ge:
        compiled.runner.graph.name = name
    text = compiled.get_code(options.static_kernel_options())
    if not isinstance(text, str):
        raise RuntimeError("torchair generates no code for this graph under these options")
    # Graphs are counted per process (`graph_1`): the text must not depend on that, and names must be unique.
    return re.sub(rf"\b{re.escape(counted)}\b", name, text)


def _split(text: str) -> tuple[str, SplitModel] | None:
    """Return generated text with a model of the handled operators only, and the parts of its model; None to keep it."""
    match = re.search(r"^serialized_graph = (b['\"].*)$", text, re.MULTILINE)
    if match is None:
        raise RuntimeError("torchair generated no serialised graph")
    model = ge_model_class().FromString(ast.literal_eval(match[1]))
    split = split_model(model, str(torch_npu_module().__version__))
    if split is None:
        return None
    text = f"{text[: match.start(1)]}{split.handled!r}{text[match.end(1) :]}"
    # The converter imports Dynamo; a load has these two names already (`load_kernel`).
    return re.sub(
        r"^from torchair\._ge_concrete_graph\.fx2ge_converter import \w+\n", "", text, flags=re.MULTILINE
    ), split


def gear_lists(job: CompileJob) -> list[dict[int, list[int]]]:
    """Return for each input the dims that change and their size at every gear; empty without gears in one graph."""
    symbols = job.graph.get("symbols") or {}
    if "gears" not in symbols:
        return []
    rows = [gear_values(symbols, input_sizes) for input_sizes in symbols["sizes"]]
    return [{dim: values for dim, values in enumerate(input_sizes) if values is not None} for input_sizes in rows]


def ordered_gears(text: str, gears: list[dict[int, list[int]]]) -> str:
    """Put the entries of `ge.dynamicDims`, which torchair leaves in hash order, into the order of the gears."""
    dims = re.search(r'^local_compile_options\["ge\.dynamicDims"\] = "(.*)"$', text, re.MULTILINE)
    shapes = re.search(r'^local_compile_options\["ge\.inputShape"\] = "(.*)"$', text, re.MULTILINE)
    if dims is None or shapes is None:
        raise RuntimeError("torchair made no ge.dynamicDims for a graph with gears")
    columns = []
    for item in shapes[1].split(";"):
        name, _, _ = item.partition(":")
        position = int(name.removeprefix("arg").partition("_")[0])
        columns += [values for _, values in sorted(gears[position].items())] if position < len(gears) else []
    entries = list(dict.fromkeys(",".join(map(str, entry)) for entry in zip(*columns, strict=True)))
    if sorted(entries) != sorted(dims[1].split(";")):
        raise RuntimeError(f"torchair formed the gears {dims[1]}, wanted were {';'.join(entries)}")
    return f"{text[: dims.start(1)]}{';'.join(entries)}{text[dims.end(1) :]}"


def graph_name(job: CompileJob) -> str:
    """A name that is the same in every process; it is part of the generated text."""
    digest = hashlib.sha256(f"{job.method} {job.gear}".encode()).hexdigest()
    return f"gearcache_{digest[:16]}"
