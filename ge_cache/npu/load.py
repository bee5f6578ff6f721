"""Run the text that torchair generated: GE loads or compiles its graph, an aclgraph gets its static kernels."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from msgspec import msgpack

from gearcache.errors import GearSpecError
from gearcache.ge_cache.backend import StoredArtifact
from gearcache.ge_cache.npu.ascend import (
    check_precision_of_ge,
    ge_modules,
    is_private_format,
    kernels_left_out,
    torch_npu_module,
    torchair_module,
)
from gearcache.ge_cache.npu.compiled_graphs import graph_folder
from gearcache.ge_cache.npu.ge_model import join_model
from gearcache.ge_cache.npu.ge_text import CompileOnly, compile_only, graph_key, missing_group
from gearcache.ge_cache.npu.input_formats import note_formats
from gearcache.ge_cache.npu.process_groups import check_groups, communicators, names_survive
from gearcache.ge_cache.npu.static_kernels import FirstCall, has_static_kernels, kernels_key
from gearcache.guards.dispatch.frame import decode_code
from gearcache.guards.dispatch.generated import execute

#: The generated text, for readers, and the code of a load: the same, compiled, and without the operators of a GE graph
#: that pass through unchanged (`ge_model`).
CODE = "kernel.py"
COMPILED = "kernel.code"
OPERATORS = "kernel.operators"
logger = logging.getLogger("gearcache")


def read_parts(artifact: StoredArtifact) -> list[bytes]:
    """Return the blobs that make up a kernel, verified: two kernels are equal when all of these are."""
    return [artifact.read(COMPILED), *([artifact.read(OPERATORS)] if "operators" in artifact.header else [])]


def load_kernel(
    parts: list[bytes],
    artifact: StoredArtifact,
    weights: Sequence[torch.Tensor],
    fingerprint: Callable[[], dict[str, Any]],
    package: Callable[[], Any],
) -> Callable[..., Any]:
    """Run the code among `parts` (see `read_parts`) and return its kernel; `package` is the generating package.

    `CacheError` when a process group of the graph does not exist here, `GearSpecError` for tensors that GE cannot take.
    """
    torch_npu_module()
    namespace: dict[str, Any] = {"__name__": "gearcache.generated.torchair"}
    is_ge = artifact.header["ge"]
    if is_ge and len(parts) > 1:
        ge_modules()
        # The text of such a graph imports neither function (`convert`): a split graph has no operator for the first.
        namespace["_update_constplaceholder_attr_from_inputs"] = lambda *ignored: None
        namespace["_update_internal_format_from_inputs"] = note_formats
    elif is_ge:
        torchair_module()
    try:
        execute(decode_code(msgpack.decode(parts[0]), {}), namespace)
    except AssertionError as error:
        raise missing_group(artifact.read(CODE), error) from error
    check_groups(artifact.header["method"], artifact.header["groups"])
    examples = artifact.examples()
    _check_gears(artifact.header, examples)
    if is_ge:
        is_known = check_precision_of_ge()
        if len(parts) > 1:
            graph = namespace["ge_graph"]
            # torchair's changes to the graph at its first call reach GE together with all other operators.
            graph.SerializeToString = functools.partial(join_model, graph.model, parts[1], artifact.header["operators"])
        sizes = [examples[index].size(dim) for index, dim in artifact.header["owners"]]
        arguments = [*sizes, *examples, *artifact.header["numbers"], *weights]
        _compile_ge(namespace, artifact, parts, arguments, fingerprint if is_known else None)
    elif has_static_kernels(namespace) and artifact.folder is not None:
        get_format = torch_npu_module().get_npu_format

        def key(arguments: Sequence[Any]) -> str:
            tensors = [
                [list(item.shape), item.device.type == "npu" and get_format(item)]
                for item in arguments
                if isinstance(item, torch.Tensor)
            ]
            return kernels_key(parts[0], fingerprint(), tensors, kernels_left_out(package()))

        FirstCall(namespace, artifact.folder("static_kernels"), key, artifact.header["written"])
    kernel: Callable[..., Any] = namespace["kernel"]
    return kernel


def _check_gears(header: Mapping[str, Any], examples: Sequence[torch.Tensor]) -> None:
    """Raise `GearSpecError` for a tensor whose sizes change with the gear, where GE cannot take it."""
    method = header["method"]
    for index, (tensor, sizes) in enumerate(zip(examples, header["sizes"], strict=True)):
        if (index in header["geared"] or list(tensor.shape) != sizes) and is_private_format(tensor):
            kind = torch_npu_module().get_npu_format(tensor)
            raise GearSpecError(
                f"`{method}`: tensor {index} changes with the gear and has the private storage format {kind}; cast "
                "it to a base format with torch_npu.npu_format_cast"
            )
        if index in header["geared"] and tensor.device.type == "cpu":
            raise GearSpecError(
                f"`{method}`: tensor {index} changes with the gear and is on the CPU, which GE's own gear "
                "execution does not take; move it to the NPU, or use gear_execution='static'"
            )


def _compile_ge(
    namespace: dict[str, Any],
    artifact: StoredArtifact,
    parts: list[bytes],
    arguments: list[Any],
    fingerprint: Callable[[], dict[str, Any]] | None,
) -> None:
    """Let GE load and compile the graph, without running it; without a fingerprint none of GE's files is kept."""
    options = namespace["local_compile_options"]
    # Sizes were checked against the gear; torchair's own check in the first call accepts only the traced sizes.
    namespace["assert_size_stride"] = lambda *ignored: None
    graph = namespace["ge_graph"]
    namespace["ge_graph"] = CompileOnly(graph)
    try:
        if artifact.folder is None or not artifact.keeps_compiled:
            compile_only(namespace["kernel"], arguments)
            return
        groups = communicators(graph._proto)
        if groups and not names_survive(torch_npu_module()):
            compile_only(namespace["kernel"], arguments)
            return
        if fingerprint is None:
            logger.warning(
                "GE was started before gearcache saw it, and takes allow_hf32 once: its compiled graphs are not kept; "
                "call a cached method (or gearcache.compat.torchair.install()) before other compiled models"
            )
            compile_only(namespace["kernel"], arguments)
            return
        # GE takes the entry of a key without comparing graphs, and the formats enter the graph only after this.
        get_format = torch_npu_module().get_npu_format
        formats = [
            int(get_format(item)) if item.device.type == "npu" else None
            for item in arguments
            if isinstance(item, torch.Tensor)
        ]
        key = graph_key(parts, {**fingerprint(), "communicators": groups, "formats": formats})
        with graph_folder(artifact.folder("ge"), key) as folder:
            if folder is not None:
                options["ge.graph_compiler_cache_dir"] = str(folder)
                options["ge.graph_key"] = key
            compile_only(namespace["kernel"], arguments)
    finally:
        namespace["ge_graph"] = graph
