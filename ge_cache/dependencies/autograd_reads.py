"""Record what a trace reads about autograd, which is off while it runs: as checks, or the method is refused.

A cached call returns the result of eager mode under its caller's grad mode, but records nothing. So neither grad mode
nor whether a tensor requires grad is a constant of a trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import nodes as private_nodes
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.constants import NotConstant, to_plain

#: Whether autograd is on in the current call.
GRAD_MODE = Access(("module", "torch")).then("attr", "is_grad_enabled").then("call")


class AutogradReads:
    """Records Dynamo's answers about autograd while it traces one method, with autograd on or off."""

    #: Properties that are read of tensors, and the answers where nothing is recorded.
    PROPERTIES: ClassVar[dict[str, Any]] = {
        "requires_grad": False,
        "grad_fn": None,
        "is_leaf": True,
        "retains_grad": False,
    }

    def __init__(self, method: str, with_grad: bool) -> None:
        self._method = method
        self._with_grad = with_grad
        #: Whether the answers depend on grad mode.
        self.asks_mode = False
        self._asks_results = False
        self._is_recorded = False
        self._grad_sources: list[Any] = []

    def of_mode(self) -> None:
        """Note that grad mode was read, or set other than by a `with`."""
        self.asks_mode = True

    def of_tensor(self, source: Any) -> None:
        """Note a tensor from before the call whose `requires_grad` was set and, as a trace allows no more, kept."""
        self._grad_sources.append(source)

    def of_result(self, name: str, value: Any) -> None:
        """Note a property that was read of a result; `TensorReads` notes those of earlier tensors."""
        self.asks_mode = self._asks_results = True
        if value != self.PROPERTIES[name]:
            if not self._with_grad:
                raise CaptureError(
                    self._method,
                    f"it reads `{name}` of a tensor that it made under torch.enable_grad(), and a cached call records "
                    "nothing; leave enable_grad() out of it",
                )
            self._is_recorded = True

    def checks(self, translator: Any, inputs: Iterable[Access], attributes: Iterable[Access]) -> list[Check]:
        """Return the dependencies of the answers, except grad mode; `CaptureError` where they cannot be compared."""
        paths = [translator.access(source).then("attr", "requires_grad") for source in self._grad_sources]
        if self._asks_results:  # a result requires grad if anything that it was made from does
            paths += [access.then("attr", "requires_grad") for access in inputs]
        if self._is_recorded:  # nothing is recorded for inference tensors
            paths += [access.then("attr", "is_inference").then("call") for access in [*inputs, *attributes]]
        checks = []
        for path in paths:
            try:
                checks.append(Check("constant", path, to_plain(translator.value(path))))
            except NotConstant as error:
                raise CaptureError(
                    self._method, f"it depends on `{path.text}`, a {error}, which another process cannot compare"
                ) from None
            if path.steps[-1][0] == "call" and translator.value(path):
                raise CaptureError(
                    self._method,
                    "it asks, with autograd on, whether a result of inference tensors requires grad; call it under "
                    "torch.no_grad() or torch.inference_mode()",
                )
        return checks

    def check_graph(self, graph: torch.fx.Graph) -> None:
        """Refuse a captured graph that leaves grad mode changed, or whose results require grad with autograd off."""
        switches = [node.args[0] for node in graph.nodes if private_nodes.is_grad_switch(node)]
        if switches and switches[-1] != self._with_grad:
            raise CaptureError(
                self._method,
                "it leaves grad mode changed for its caller; use `with torch.set_grad_enabled(...):` instead",
            )
        if not self._with_grad:
            regions = [node.args[0] for node in graph.nodes if private_nodes.enters_inference_mode(node)]
            self._asks_results |= True in switches or False in regions  # the latter turns autograd on as well
            _check_results(self._method, graph)


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
