"""Find the transforms of `torch.func` in a captured graph; each private name has a test."""

from __future__ import annotations

from torch import fx

#: The function that begins a transform in a captured graph -> the transform.
_BEGINNINGS = {
    "_vmap_increment_nesting": "torch.vmap",
    "_grad_increment_nesting": "torch.func.grad",
    "_jvp_increment_nesting": "torch.func.jvp",
    "_func_increment_nesting": "torch.func.functionalize",
}


def transforms_of(graph: fx.Graph) -> set[str]:
    """Return the transforms of `torch.func` that a captured graph uses, by their public names."""
    names = {getattr(node.target, "__name__", "") for node in graph.nodes if node.op == "call_function"}
    return {_BEGINNINGS[name] for name in names & _BEGINNINGS.keys()}
