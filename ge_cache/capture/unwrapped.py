"""Unwrap quantised weights into the plain tensors that they consist of, as `torch.compile` does.

A weight of torchao is a tensor without memory of its own: its class holds a few plain tensors (`__tensor_flatten__`)
and defines operations on them. The captured graph rebuilds the weight from these. When the graph is recorded as ATen
operations, the class answers with operations on its plain tensors, which then are the weights. The key contains class
and settings of such a weight (`cache.keys.fingerprint`), and the code that answers is hashed as traced code is.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from gearcache.ge_cache.capture.captured import Capture
from gearcache.guards.access import Access
from gearcache.guards.evidence.names import module_of

#: Libraries whose classes read only their own tensors and settings: code of others may read anything.
_LIBRARIES = ("torchao",)


def is_unwrapped(tensor: torch.Tensor) -> bool:
    """Return whether a weight's class is one that is unwrapped."""
    return module_of(type(tensor)).partition(".")[0] in _LIBRARIES and hasattr(tensor, "__tensor_flatten__")


def unwrap_weights(capture: Capture) -> None:
    """Let the graph of a capture take the plain tensors of its quantised weights instead of the weights."""
    wrapped = [name for name in capture.attributes if is_unwrapped(capture.attribute_tensors[name])]
    graph = capture.module.graph
    for name in wrapped:
        access, tensor = capture.attributes.pop(name), capture.attribute_tensors.pop(name)
        nodes = [node for node in graph.nodes if node.op == "get_attr" and node.target == name]
        with graph.inserting_before(nodes[0]):
            rebuilt = _rebuilt(capture, name, access, tensor)
        for node in nodes:
            node.replace_all_uses_with(rebuilt)
            graph.erase_node(node)
    if wrapped:
        capture.module.recompile()
        capture.module.meta["answering code"] = capture.traced_code


def _rebuilt(capture: Capture, name: str, access: Access, tensor: Any) -> fx.Node:
    """Return the node of a tensor, rebuilt from the nodes of its inner tensors, to any depth."""
    graph = capture.module.graph
    if not is_unwrapped(tensor):
        while hasattr(capture.module, name):  # a module may have a `weight_scale` beside a `weight`
            name += "_"
        plain = tensor.detach()
        capture.module.register_buffer(name, plain)
        capture.attributes[name], capture.attribute_tensors[name] = access, tensor
        node = graph.get_attr(name)
        node.meta["example_value"] = plain
        return node
    part_names, settings = tensor.__tensor_flatten__()
    nodes = [
        _rebuilt(capture, f"{name}_{part}", access.then("attr", part), getattr(tensor, part)) for part in part_names
    ]
    return graph.call_function(
        _rebuild(type(tensor), part_names, settings, tensor.size(), tensor.stride()), tuple(nodes)
    )


def _rebuild(cls: Any, part_names: list[str], settings: Any, sizes: Any, strides: Any) -> Callable[..., torch.Tensor]:
    def rebuild(*tensors: torch.Tensor) -> torch.Tensor:
        parts = dict(zip(part_names, tensors, strict=True))
        tensor: torch.Tensor = cls.__tensor_unflatten__(parts, settings, sizes, strides)
        return tensor

    return rebuild


@contextmanager
def noting_code(module: fx.GraphModule) -> Iterator[None]:
    """Add the code that runs for the weights of a captured graph to its traced code."""
    traced_code = module.meta.get("answering code")
    if traced_code is None:
        yield
        return

    def note(frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
            codes[id(frame.f_code)] = frame.f_code

    codes = {id(code): code for code in traced_code}
    profiler = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(profiler)
        traced_code[:] = codes.values()
