"""The tensors of a graph: parameters and buffers that a load binds, and inputs, which are read on every call."""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable
from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.captured import CapturedInput
from gearcache.ge_cache.capture.hook import GraphHook
from gearcache.ge_cache.capture.source_paths import root_of
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.ge_cache.private_torch.symbols import lines_that_fixed_sizes
from gearcache.guards.access import Access, Scope
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.names import a_type
from gearcache.guards.evidence.tensor_facts import PLAIN_TYPES, tensor_plain

#: Types of sizes and the like, which a graph may read of a tensor without computing with it: no value has these types.
_NUMBERS = (torch.SymInt, torch.SymBool)


class Weights:
    """Tensors of a method's own modules are bound: modules below its instance, globals and closures.

    Tensors of arguments are not bound: the next call may pass another module. Neither are tensors that the frame
    writes: a first trace reports these, and the next trace receives Dynamo's names of them as `unbound`.
    """

    def __init__(self, function: types.FunctionType, unbound: Collection[str] = ()) -> None:
        code = function.__code__
        #: The frame variables that are not arguments of a call.
        self._own_names = {code.co_varnames[0], *code.co_freevars} if code.co_argcount else set(code.co_freevars)
        self._unbound = frozenset(unbound)

    def are_bound(self, source: Any) -> bool:
        """Whether a tensor of this source of Dynamo's is a parameter or buffer that is bound at load."""
        if type(getattr(source, "base", None)).__name__ != "UnspecializedParamBufferSource":
            return False
        if self.are_replaced(source):
            return False
        root = root_of(source)
        return type(root).__name__ != "LocalSource" or root.local_name in self._own_names

    def are_replaced(self, source: Any) -> bool:
        """Return whether the frame replaces the tensors of this source."""
        return source.name in self._unbound


def layout_checks(method: str, paths: Paths, bound: Iterable[Access], instance: str) -> list[Check]:
    """Return the checks of dtypes, sizes and strides of bound weights that the key does not hold.

    The key holds the layouts of what is below an instance's `_modules`; a model may also be in a list, a global or a
    closure. `instance` is the name of the instance's parameter.
    """
    checks = []
    for access in bound:
        if access.root != ("argument", instance) or not access.is_below_modules:
            weight = paths.value(access)
            if type(weight) not in PLAIN_TYPES:
                cause = f"`{access.text}` is {a_type(weight)} outside of the modules of its instance"
                raise CaptureError(method, f"{cause}: assign its module as an attribute of the instance")
            checks.append(Check("tensor", access, tensor_plain(weight, sizes=True)))
    return checks


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
