"""The tensor inputs of a graph: their paths, and the facts that the trace assumes of them."""

from __future__ import annotations

from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.captured import CapturedInput
from gearcache.ge_cache.capture.hook import GraphHook
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.ge_cache.private_torch.symbols import lines_that_fixed_sizes
from gearcache.guards.access import Access, Scope
from gearcache.guards.evidence.checks import Check

#: Types of sizes and the like, which a graph may read of a tensor without computing with it: no value has these types.
_NUMBERS = (torch.SymInt, torch.SymBool)


def graph_inputs(hook: GraphHook, paths: Paths) -> list[CapturedInput]:
    """Return the inputs of a graph; `CaptureError` where the method changes sizes or strides of one in place."""
    inputs = []
    for source, node in zip(hook.sources, hook.nodes, strict=True):
        item = _describe(paths.of(source), node, paths.scope)
        if not _has_layout_of(node.meta["example_value"], item.example):
            cause = f"it changes the sizes or strides of `{item.access.text}` in place, for its caller as well"
            raise CaptureError(paths.method, f"{cause}; change those of a view of it: `.view_as(x)`")
        inputs.append(item)
    return inputs


def fixed_sizes(hook: GraphHook, inputs: list[CapturedInput]) -> dict[str, str]:
    """Return the lines that needed the value of a size that could vary, by the path of the size."""
    texts = {source.name: item.access.text for source, item in zip(hook.sources, inputs, strict=True)}
    return {
        f"{texts[base.name]}.size({dim})": line
        for base, dim, line in lines_that_fixed_sizes(hook.shape_env)
        if base.name in texts
    }


def place_checks(access: Access) -> list[Check]:
    """Return the checks that a module stores a tensor at a path: the frame reads it there without a look-up."""
    *prefix, (kind, name) = access.steps or (("", None),)
    if kind not in ("item", "dict_item") or not prefix or prefix[-1][1] not in ("_parameters", "_buffers"):
        return []
    owner = prefix[:-2] if len(prefix) > 1 and prefix[-2] == ("attr", "__dict__") else prefix[:-1]
    attributes = Access(access.root, (*owner, ("attr", "__dict__")))
    return [Check("contains", Access(access.root, tuple(prefix)), name), Check("lacks", attributes, name)]


def unbacked_sizes(inputs: list[CapturedInput], shape_env: Any) -> dict[Any, int]:
    """Return the size in the traced call of each symbol without a value in the trace (`mark_unbacked`)."""
    return {
        expression: size
        for item in inputs
        for expression, size in zip(item.sizes, item.example.shape, strict=True)
        if getattr(expression, "is_Symbol", False) and expression not in shape_env.backed_var_to_val
    }


def _has_layout_of(fake: torch.Tensor, example: torch.Tensor) -> bool:
    """Return whether a tensor of a trace still has the sizes and strides of the real tensor that it represents."""
    if fake.dim() != example.dim():
        return False
    traced_layout, real_layout = (*fake.shape, *fake.stride()), (*example.shape, *example.stride())
    hints = [number.node.hint if isinstance(number, torch.SymInt) else number for number in traced_layout]
    return all(hint is None or hint == real for hint, real in zip(hints, real_layout, strict=True))


def _describe(access: Access, node: torch.fx.Node, scope: Scope) -> CapturedInput:
    fake = node.meta["example_value"]
    example = access.resolve(scope)
    return CapturedInput(
        access=access,
        node_name=node.name,
        sizes=tuple(_expression(size) for size in fake.shape),
        strides=tuple(_expression(stride) for stride in fake.stride()),
        dtype=fake.dtype,
        device=fake.device,
        computed=not all(isinstance(user.meta.get("example_value"), _NUMBERS) for user in node.users),
        example=example,
    )


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)
