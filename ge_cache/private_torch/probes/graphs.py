"""Keep the graphs that Dynamo begins: they hold weak references to tensors, which are dropped in the end."""

from __future__ import annotations

from typing import Any

from torch._dynamo.output_graph import OutputGraph

from gearcache.ge_cache.private_torch.probe import Probes

probes = Probes()


@probes.at(OutputGraph, "__init__")
def begun(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Keep a graph, also one that an exception leaves unfinished."""
    trace.graphs.append(self)
    original(self, *arguments, **keywords)
