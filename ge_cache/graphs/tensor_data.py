"""Replace `tensor.data` in a captured graph."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.private_torch import nodes as private_nodes


def take_data(method: str, graph: fx.Graph, sources: Mapping[str, Any]) -> None:
    """Put `tensor.detach()` in place of `tensor.data`: without autograd it is the same memory.

    `CaptureError` where the graph assigns to it: the tensor would have other memory afterwards. `sources`: Dynamo's
    sources of the tensors that the graph holds as attributes.
    """
    for node in list(graph.nodes):
        if private_nodes.reads_data(node):
            with graph.inserting_before(node):
                detached = graph.call_method("detach", node.args)
            detached.meta = dict(node.meta)
            node.replace_all_uses_with(detached)
            graph.erase_node(node)
        elif private_nodes.assigns_data(node):
            owner = node.args[0]
            source = owner.meta["grapharg"].source if "grapharg" in owner.meta else sources.get(owner.target)
            name = _readable(source.name) if source is not None else str(owner)
            raise CaptureError(
                method,
                f"it assigns to the `.data` of `{name}`, which has other memory then; "
                f"assign a tensor to the attribute itself, or copy into the one it has (`.copy_(…)`)",
            )


def _readable(name: str) -> str:
    """Return Dynamo's name of a tensor as a user writes it: `self.weight`."""
    name = re.sub(r"^[LG]\['(\w+)'\]", r"\1", name)
    return re.sub(r"\._(?:parameters|buffers|modules)\['([^']*)'\]", r".\1", name)
