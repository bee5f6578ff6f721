"""Record what a trace reads of tensors beyond their values, and about autograd: as checks, or the method is refused.

Sizes, strides and dtype of the graph's inputs are compared on every call, so a tensor whose sizes the trace reads stays
an input of the graph, used there or not. Other facts read of a tensor (`requires_grad`, its class) are noted here and
become checks, as do the facts of a tensor that the trace saw and that is not an input.

A cached call returns the result of eager mode under its caller's grad mode, but records nothing. So neither grad mode
nor whether a tensor requires grad is a constant of a trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import is_given
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import nodes as private_nodes
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.names import a_type
from gearcache.guards.evidence.tensor_facts import PLAIN_TYPES, tensor_plain

#: Whether autograd is on in the current call.
GRAD_MODE = Access(("module", "torch")).then("attr", "is_grad_enabled").then("call")
_BUFFER_MARK = "_is_buffer"


def tensor_checks(log: TraceLog, paths: Paths, matched: Iterable[Any], held_sources: Iterable[Any]) -> list[Check]:
    """Return the checks of the tensors that the trace saw: `matched` are the sources of all that Dynamo guards.

    Every tensor in `matched` counts: one that is not in `held_sources`, as the graph has it neither as an input nor
    bound to it, gets a check here. A buffer whose sizes alone were read is not in them.
    """
    covered, sized = set(held_sources), {source for (source,) in log.given("sizes")}
    checks = []
    for source in matched:
        if source not in covered:
            path = paths.of(source)
            tensor = paths.value(path)
            if type(tensor) not in PLAIN_TYPES:
                cause = f"it passes on `{path.text}`, {a_type(tensor)}, which its graph does not compute with"
                raise CaptureError(log.method, cause)
            checks.append(Check("tensor", path, tensor_plain(tensor, sizes=source in sized)))
    for source, is_result in log.given("class of a tensor"):
        path = paths.of(source)
        tensor = paths.value(path)
        if is_result and (type(tensor) is not torch.Tensor or hasattr(tensor, _BUFFER_MARK)):
            cause = (
                f"it asks for the class of a result that is `{path.text}`, {a_type(tensor)}, as an assignment like "
                f"`self.weight += 1` does: write it in place (`self.weight.add_(1)`), or copy it"
            )
            raise CaptureError(log.method, cause)
        checks.append(observe("type", path, tensor))
        checks.append(observe("has_attr" if hasattr(tensor, _BUFFER_MARK) else "no_attr", path, tensor, _BUFFER_MARK))
    values = {(source, name): value for source, name, value in log.of("attribute of a tensor") if is_given(source)}
    for (source, name), value in values.items():
        path = paths.of(source).then("attr", name)
        if callable(paths.value(path)):
            path = path.then("call")
        try:
            expected = to_plain(value)
        except NotConstant as error:
            raise CaptureError(log.method, f"it reads `{path.text}`, a {error}") from None
        if to_plain(paths.value(path)) != expected:
            raise CaptureError(log.method, f"it reads `{path.text}`, which a trace cannot tell")
        checks.append(Check("constant", path, expected))
    return checks


def autograd_checks(log: TraceLog, paths: Paths, inputs: Iterable[Access], attributes: Iterable[Access]) -> list[Check]:
    """Return what the answers about autograd depend on, except grad mode; `CaptureError` if that cannot be compared."""
    accesses = [paths.of(source).then("attr", "requires_grad") for (source,) in log.distinct("tensor with grad")]
    if log.of("result asked"):  # a result requires grad if anything that it was made from does
        accesses += [access.then("attr", "requires_grad") for access in inputs]
    if log.of("result recorded"):  # nothing is recorded for inference tensors
        accesses += [access.then("attr", "is_inference").then("call") for access in [*inputs, *attributes]]
    checks = []
    for access in accesses:
        try:
            checks.append(Check("constant", access, to_plain(paths.value(access))))
        except NotConstant as error:
            raise CaptureError(
                log.method, f"it depends on `{access.text}`, a {error}, which another process cannot compare"
            ) from None
        if access.steps[-1][0] == "call" and paths.value(access):
            raise CaptureError(
                log.method,
                "it asks, with autograd on, whether a result of inference tensors requires grad; call it under "
                "torch.no_grad() or torch.inference_mode()",
            )
    return checks


def weight_checks(log: TraceLog, paths: Paths, attributes: Iterable[Access]) -> list[Check]:
    """Return checks of each call whether weights require grad, if a result was asked: a program may freeze them."""
    if not log.of("result asked"):
        return []
    asked = [access.then("attr", "requires_grad") for access in attributes]
    return [observe("constant", path, paths.value(path)) for path in asked]


def check_graph(log: TraceLog, graph: torch.fx.Graph, *, with_grad: bool) -> None:
    """Refuse a captured graph that leaves grad mode changed, or whose results require grad with autograd off."""
    switches = [node.args[0] for node in graph.nodes if private_nodes.is_grad_switch(node)]
    if switches and switches[-1] != with_grad:
        raise CaptureError(
            log.method,
            "it leaves grad mode changed for its caller; use `with torch.set_grad_enabled(...):` instead",
        )
    if not with_grad:
        regions = [node.args[0] for node in graph.nodes if private_nodes.enters_inference_mode(node)]
        if True in switches or False in regions:  # the latter turns autograd on as well
            log.note("result asked")
        _check_results(log.method, graph)


def _check_results(method: str, graph: torch.fx.Graph) -> None:
    input_storages = {
        private_core.storage_key(value)
        for node in graph.nodes
        if node.op in ("placeholder", "get_attr") and isinstance(value := node.meta.get("example_value"), torch.Tensor)
    }
    (output,) = [node for node in graph.nodes if node.op == "output"]
    for node in output.all_input_nodes:
        value = node.meta.get("example_value")
        if (
            isinstance(value, torch.Tensor)
            and value.requires_grad
            and private_core.storage_key(value) not in input_storages
        ):
            raise CaptureError(
                method,
                "its result requires grad although autograd is off around it (torch.enable_grad() or "
                "requires_grad_() inside), and a cached call records nothing; leave that out, or detach the result",
            )
