"""Record what a trace reads about autograd: as checks, or the method is refused.

A cached call returns the result of eager mode under its caller's grad mode, but records nothing. So neither grad mode
nor whether a tensor requires grad is a constant of a trace.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import nodes as private_nodes
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.constants import NotConstant, to_plain

#: Whether autograd is on in the current call.
GRAD_MODE = Access(("module", "torch")).then("attr", "is_grad_enabled").then("call")


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
    return [
        Check("reads", access, ["requires_grad", to_plain(paths.value(access).requires_grad)]) for access in attributes
    ]


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
