"""Turn a gear's graph outputs into the values that the method's frame expects.

A backend compiles fresh tensors only. An output that *is* an input, or a view of an input, of an attribute or of
another output, and every output that is not a tensor, is left out of the compiled graph and rebuilt here, so that
aliasing is the same as in eager mode on every backend.

| form | value |
|---|---|
| `["output", k]` | output `k` of the compiled graph |
| `["constant", v]` | `None`, a bool, an int, a float or a string |
| `["input", k]` | input `k` itself |
| `["attribute", name]` | the parameter or buffer itself |
| `["input_view", k, size, stride, offset]` | a view of input `k`; `offset` counts from the input's own offset |
| `["attribute_view", name, size, stride, offset]` | the same for an attribute |
| `["output_view", k, size, stride, offset]` | a view of compiled output `k` |
| `["result", k]` | the same view as an earlier result `k` |

A view of another dtype (`view_as_real`, `x.real`, `x.view(torch.int8)`) names it after the offset, which then counts
elements of the smaller one. A view of something that requires grad does so too, unless the method detached it: then a
last item `True` follows.

In a graph with dynamic dims, numbers may be expressions (strings) over the dims of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.graphs.arguments import given_arguments
from gearcache.ge_cache.graphs.memory_order import hints, order_of
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.evidence.names import a_type

Result = list[Any]
_ATEN = torch.ops.aten
_STRIDED = (_ATEN.as_strided, _ATEN.as_strided_, _ATEN.as_strided_copy, _ATEN.as_strided_scatter)


class ResultPlan:
    """Splits the outputs of one traced graph into compiled outputs and rebuilt ones.

    Outputs that share their own storage are views of the output that covers it. When none covers it, each is compiled
    by itself: they equal eager's, but no longer share memory. A graph whose operators are called gives the views itself
    (`rebuilds_views=False`): a kernel may lay its result out otherwise than the trace says, as indexing by transposed
    indices does.
    """

    def __init__(self, method: str, number: Callable[[Any], Any], *, rebuilds_views: bool) -> None:
        self._method = method
        self._number = number
        self._rebuilds_views = rebuilds_views
        self.results: list[Result] = []
        self.compiled: list[int] = []
        self._detached: set[int] = set()
        self._placed: set[int] = set()

    def plan(
        self,
        outputs: list[Any],
        inputs: list[torch.Tensor],
        attributes: dict[str, torch.Tensor],
        detached: set[int],
        placed: set[int],
    ) -> None:
        """Fill `results` (one per output) and `compiled` (indices of outputs that a backend computes).

        `detached` are the outputs that the method detached from autograd, `placed` those at a given place of a storage.
        """
        self._detached, self._placed = detached, placed
        tensors = [index for index, value in enumerate(outputs) if _is_tensor(value)]
        borrowed = {index: self._borrowed(index, outputs[index], inputs, attributes) for index in tensors}
        # The size of an input's storage is irrelevant: for a view it follows from no size of the inputs.
        bases = _bases(outputs, [index for index in tensors if borrowed[index] is None], self._rebuilds_views)
        self.compiled = sorted(set(bases.values()))
        positions = {index: position for position, index in enumerate(self.compiled)}
        for index, value in enumerate(outputs):
            form = borrowed.get(index) or self._own_form(index, outputs, value, positions, bases)
            equal_index = next(place for place, output in enumerate(outputs) if output is value)
            is_again = form[0].endswith("_view") and equal_index < index
            self.results.append(["result", equal_index] if is_again else form)

    def _own_form(
        self, index: int, outputs: list[Any], value: Any, positions: dict[int, int], bases: dict[int, int]
    ) -> Result:
        if not _is_tensor(value):
            return ["constant", self._constant(value)]
        base = bases[index]
        if base == index or value is outputs[base]:
            return ["output", positions[base]]
        return self._view("output_view", positions[base], value, outputs[base], index)

    def _borrowed(
        self, index: int, value: torch.Tensor, inputs: list[torch.Tensor], attributes: dict[str, torch.Tensor]
    ) -> Result | None:
        """Return how an output derives from an input or attribute; None when it has memory of its own."""
        if value.is_conj() or value.is_neg():
            cause = f"output {index} is a lazy conjugate or negative view: return its `.resolve_conj().resolve_neg()`"
            raise CaptureError(self._method, cause)
        owners: list[tuple[str, Any, torch.Tensor]] = [("input", *item) for item in enumerate(inputs)]
        owners += [("attribute", *item) for item in attributes.items()]
        for kind, owner, tensor in owners:
            if value is tensor:
                return [kind, owner]
        storage = private_core.storage_key(value)
        for kind, owner, tensor in owners:
            if private_core.storage_key(tensor) == storage:
                if index in self._placed:
                    raise CaptureError(
                        self._method,
                        f"output {index} is `as_strided` with a storage offset, which counts from the begin of the "
                        f"storage and not of the {kind}: leave the offset out, or return a copy (`.clone()`)",
                    )
                if _is_of_values(value):
                    cause = f"output {index} is a view of an {kind}, of a size that depends on values: return a copy"
                    raise CaptureError(self._method, f"{cause} (`.clone()`)")
                return self._view(f"{kind}_view", owner, value, tensor, index)
        return None

    def _view(self, kind: str, owner: Any, value: torch.Tensor, base: torch.Tensor, index: int) -> Result:
        unit = min(value.element_size(), base.element_size())
        begin, base_begin = (tensor.storage_offset() * (tensor.element_size() // unit) for tensor in (value, base))
        sizes = [self._number(size) for size in value.shape]
        form = [
            kind,
            owner,
            sizes,
            [self._number(stride) for stride in value.stride()],
            self._number(begin - base_begin),
        ]
        if value.dtype != base.dtype:
            form.append(str(value.dtype).removeprefix("torch."))
        return [*form, True] if index in self._detached and not kind.startswith("output") else form

    def _constant(self, value: Any) -> Any:
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return self._returned_number(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise CaptureError(self._method, f"the graph returns {a_type(value)}, which cannot be stored")

    def _returned_number(self, value: Any) -> Any:
        try:
            return self._number(value)
        except Exception as error:  # torch knows no value of it before the graph runs
            raise CaptureError(
                self._method,
                "it returns an int or bool that it computes from values, such as `int(x.sum())` or `x.any().item()`: "
                "return the tensor, and call `.item()` on the result",
            ) from error


def detached_outputs(module: torch.fx.GraphModule, outputs: list[Any]) -> set[int]:
    """Return the outputs that a recorded graph detaches."""
    return _views_by(module, outputs, lambda view: view.target is torch.ops.aten.detach.default)


def placed_outputs(module: torch.fx.GraphModule, outputs: list[Any]) -> set[int]:
    """Return the outputs that are views at a given offset of a storage, wherever their base begins."""
    return _views_by(module, outputs, _is_placed)


def placed_reads(module: torch.fx.GraphModule) -> list[str]:
    """Return the operators of a recorded graph that read an input or a weight at a given offset of its storage."""
    return sorted({str(node.target) for node in module.graph.nodes if _is_placed(node) and _is_given(node.args[0])})


def _is_placed(node: torch.fx.Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet in _STRIDED and given_arguments(node).get("storage_offset") is not None


def _is_given(node: Any) -> bool:
    """Return whether a node is an input or a weight, or a view of one."""
    while (base := _viewed(node)) is not None:
        node = base
    return bool(node.op in ("placeholder", "get_attr"))


def _views_by(module: torch.fx.GraphModule, outputs: list[Any], is_sought: Callable[[torch.fx.Node], bool]) -> set[int]:
    """Return the outputs on whose way from their base is a sought view; the output node has the tensors only."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    tensors = [index for index, value in enumerate(outputs) if _is_tensor(value)]
    return {index for index, node in zip(tensors, output.args[0], strict=True) if any(map(is_sought, _views_to(node)))}


def _views_to(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Yield a node and the nodes before it, as long as each is a view."""
    while (base := _viewed(node)) is not None:
        yield node
        node = base


def _viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return the node whose memory another node shares, if that is a view of it."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    for base in node.all_input_nodes:
        parts = base.meta.get("val")
        for part in parts if isinstance(parts, (list, tuple)) else [parts]:
            if isinstance(part, torch.Tensor) and private_core.storage_key(value) == private_core.storage_key(part):
                return base
    return None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _bases(outputs: list[Any], indices: list[int], rebuilds_views: bool) -> dict[int, int]:
    """Return the base of each output with memory of its own: itself, or an output that covers the storage."""
    groups: dict[int, list[int]] = {}
    for index in indices:
        groups.setdefault(private_core.storage_key(outputs[index]), []).append(index)
    bases = {}
    for members in groups.values():
        covering = [index for index in members if rebuilds_views and _covers_storage(outputs[index])]
        for index in members:
            same = next(member for member in members if outputs[member] is outputs[index])
            # An empty tensor shares nothing, and a trace is less certain about the strides of such a result. A view of
            # sizes that no trace knows cannot be made anew.
            is_rebuilt = not _is_empty(outputs[index]) and not _is_of_values(outputs[index])
            bases[index] = covering[0] if covering and is_rebuilt else same
    return bases


def _is_empty(tensor: torch.Tensor) -> bool:
    return any(type(size) is int and size == 0 for size in tensor.shape)


def _is_of_values(tensor: torch.Tensor) -> bool:
    return private_symbols.depends_on_values((*tensor.shape, *tensor.stride(), tensor.storage_offset()))


def _covers_storage(tensor: torch.Tensor) -> bool:
    size, storage_size = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
    if private_symbols.depends_on_values((size, storage_size)) and str(size) != str(storage_size):
        return False  # a view of what `nonzero` returns: no trace knows whether it is all of it
    if hints(tensor.shape) is not None and order_of(tensor) is None:
        return False  # an expanded tensor has some of it several times
    # A storage without bytes has views at any offset.
    return bool(size == storage_size) and bool(tensor.storage_offset() == 0)
