"""Prove that filling in one padded size never reaches a real position of a recorded graph.

The graph is walked once with sizes symbolic. Every tensor has an `Extent`. Every operator that reads filling must be on
the list of `ge_cache.padding.rows`, whose rule gives the resulting extents, or the proof fails with the operator's
name. A size used as a number (a mean over the batch) fails as well: eager would have used the smaller one. Operators
without filling in their inputs may be any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from msgspec.structs import replace
from torch import fx

from gearcache.ge_cache.graphs.arguments import draws_nothing
from gearcache.ge_cache.padding.extents import Dim, Extent, grows, is_prefix
from gearcache.ge_cache.padding.fills import constant_fills, held, require_certain
from gearcache.ge_cache.padding.rules import RULES, SIZE_ARGUMENTS, elementwise
from gearcache.ge_cache.padding.step import Dependent, Rule, Step, as_list, is_list
from gearcache.ge_cache.private_torch import core as private_core

#: Operators that reach all memory of a tensor, not only its positions.
_BY_STRIDES = ("as_strided", "as_strided_", "as_strided_copy", "_reshape_alias", "set_", "resize_")


class Proof:
    """One walk over a graph, for one padded symbol. `label` names the dim in messages, e.g. `x.size(0)`.

    `fills`: input -> the value of its filling; other inputs may have any filling.
    """

    def __init__(
        self, symbol: Any, simplify: Callable[[Any], Any], label: str, fills: Mapping[int, Any] | None = None
    ) -> None:
        self._symbol = symbol
        self._simplify = simplify
        self._fills = fills or {}
        self._extents: dict[fx.Node, Any] = {}
        self.label = label
        #: Outputs in which the filling may cause NaN.
        self.doubtful: list[int] = []

    def prove(self, graph: fx.Graph, inputs: list[tuple[Any, ...]]) -> str | None:
        """Return None when every real position is right for any filling, else the reason why that is not shown.

        `inputs`: the sizes of the first placeholders; the others (weights) have no filling.
        """
        numbered_inputs = iter(enumerate(inputs))
        node: fx.Node | None = None
        try:
            for node in graph.nodes:
                if node.op == "placeholder":
                    index, sizes = next(numbered_inputs, (-1, None))
                    shape = self.sizes(node.meta["val"]) if sizes is None else [self._simplify(size) for size in sizes]
                    dims = self.unpadded_dims(shape)
                    self._extents[node] = Extent(
                        dims, fills=constant_fills(dims, held(self._fills.get(index), node.meta["val"].dtype))
                    )
                elif node.op == "get_attr":
                    continue  # constants have fixed sizes
                elif node.op == "output":
                    self._check_outputs(node)
                elif not _holds_tensor(node.meta.get("val")):
                    self._check_number(node)
                elif isinstance(node.target, private_core.OpOverload):
                    self._call(node, RULES, SIZE_ARGUMENTS, elementwise)
                elif getattr(node.target, "__name__", "") == "getitem":
                    source: Any = self._extents.get(node.args[0])  # type: ignore[arg-type]
                    if isinstance(source, list):
                        self._extents[node] = source[node.args[1]]  # type: ignore[index]
                else:
                    raise Dependent(f"`{node.target}` is not known to keep rows apart along {self.label}")
        except Dependent as error:
            return f"{error}{_place(node)}"
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # A rule received arguments that it was not written for: no proof.
            return f"`{getattr(node, 'target', '?')}` is not understood ({type(error).__name__}: {error}){_place(node)}"
        return None

    def _check_number(self, node: fx.Node) -> None:
        """A node with a number as its result: sizes are known, anything else must not depend on filling."""
        if isinstance(node.target, private_core.OpOverload) and not str(node.target).startswith("aten.sym_"):
            step = Step(self, node)
            self._check_writes(step)
            if any(self.value(item).is_padded or self.value(item).is_doubtful for item in step.tensors().values()):
                raise Dependent(f"`aten.{step.name}` makes a number of rows of {self.label}")
            if any(self._mentions(step.value(name)) for name in step.given):
                raise Dependent(f"`aten.{step.name}` uses the size {self.label} as a number")

    def _call(self, node: fx.Node, rules: Any, size_arguments: Any, elementwise: Rule) -> None:
        step = Step(self, node)
        tensors = {name: self.value(item) for name, item in step.tensors().items()}
        padded = [name for name, item in tensors.items() if isinstance(item, Extent) and item.is_padded]
        is_torchs = node.target.namespace == "aten"  # type: ignore[union-attr]
        packet = step.name.partition(".")[0] if is_torchs else step.name
        rule = (rules.get(step.name) or rules.get(packet)) if is_torchs else None
        if rule is None and is_torchs and rules.get(step.packet) is elementwise:  # in place
            rule = elementwise
        if rule is None and torch.Tag.pointwise in node.target.tags:  # type: ignore[union-attr]
            rule = elementwise
        if torch.Tag.nondeterministic_seeded in node.target.tags and not draws_nothing(step.given):  # type: ignore[union-attr]
            raise Dependent(f"`aten.{step.name}` draws random numbers")
        for name in step.given:
            if name not in size_arguments.get(packet, ()) and self._mentions(step.value(name)):
                raise Dependent(f"`aten.{step.name}` uses the size {self.label} as a number")
        self._check_writes(step)
        if packet in _BY_STRIDES and self._shares_memory(step.tensors().values(), lambda extent: extent.is_padded):
            raise Dependent(f"`aten.{step.name}` reads memory of {self.label} by strides")
        is_doubtful = any(isinstance(item, Extent) and item.is_doubtful for item in tensors.values())
        if is_doubtful:
            require_certain(step)
        depends = any(self.mentions(size) for sizes in step.result_sizes() for size in sizes)
        if not padded and not depends:
            bases = [item for name, item in tensors.items() if name in step.aliased]
            is_writable = all(base.is_writable and base.bound is None for base in bases)
            results = [
                Extent(self.unpadded_dims(sizes), None, is_writable, is_doubtful=is_doubtful)
                for sizes in step.result_sizes()
            ]
            self._set(step, results if isinstance(node.meta["val"], (list, tuple)) else results[0])
            return
        if rule is None or "out" in step.given:
            raise Dependent(f"`aten.{step.name}` is not known to keep rows apart along {self.label}")
        result = self._checked(step, rule(step))
        extents = [replace(item, is_doubtful=item.is_doubtful or is_doubtful) for item in as_list(result)]
        self._set(step, extents if isinstance(result, list) else extents[0])

    def _check_writes(self, step: Step) -> None:
        """Refuse to write what must stay as it is, and what row numbers are in: by memory, as an operator need not
        declare that its result is an alias.
        """
        written = [node for name in step.is_written for node in as_list(step.given[name]) if isinstance(node, fx.Node)]
        is_fixed = any(not self.value(node).is_writable for node in written)
        if is_fixed or self._shares_memory(written, lambda extent: extent.bound is not None):
            raise Dependent(f"`aten.{step.name}` writes rows that only filling would fill, along {self.label}")

    def _shares_memory(self, nodes: Iterable[fx.Node], is_meant: Callable[[Extent], bool]) -> bool:
        """Whether some tensors lie in the memory of others of which `is_meant` is true."""
        keys = {private_core.storage_key(node.meta["val"]) for node in nodes}
        return bool(keys) and any(
            is_meant(extent) and private_core.storage_key(value) in keys
            for node, item in self._extents.items()
            for value, extent in zip(as_list(node.meta["val"]), as_list(item), strict=True)
        )

    def _set(self, step: Step, result: Extent | list[Extent]) -> None:
        """Store a result. After a write, the known fills of all tensors may be wrong, so they are dropped."""
        if step.is_written:
            targets = [self.value(step.given[name]) for name in step.is_written]
            if any(extent.is_doubtful for extent in as_list(result)) and not all(item.is_doubtful for item in targets):
                raise Dependent(f"`aten.{step.name}` writes what masked filling of {self.label} may have made NaN")
            for node, item in self._extents.items():
                extents = [replace(extent, fills={}, counted=None, origin=()) for extent in as_list(item)]
                self._extents[node] = extents if isinstance(item, list) else extents[0]
        self._extents[step.node] = result

    def _checked(self, step: Step, result: Extent | list[Extent]) -> Extent | list[Extent]:
        """Compare a rule's result with the recorded sizes: an error in a rule causes a refusal, not a wrong result."""
        results = as_list(result)
        for extent, sizes in zip(results, step.result_sizes(), strict=True):
            rule_sizes = [self._simplify(_product(dim)) for dim in extent.dims]
            if len(rule_sizes) != len(sizes) or any(
                (left - right) != 0 for left, right in zip(rule_sizes, sizes, strict=True)
            ):
                raise Dependent(f"`aten.{step.name}` gives a shape that is not understood along {self.label}")
        return result

    def _check_outputs(self, node: fx.Node) -> None:
        for index, output in enumerate(node.args[0]):  # type: ignore[arg-type]
            extent = self.value(output)
            if isinstance(extent, Extent) and extent.is_doubtful:
                self.doubtful.append(index)
            if isinstance(extent, Extent) and not all(is_prefix(dim) for dim in extent.dims):
                raise Dependent(f"output {index} mixes the rows of {self.label} with another dim")

    def value(self, given: Any) -> Any:
        """Return the value of a node's argument."""
        if isinstance(given, fx.Node):
            if given in self._extents:
                return self._extents[given]
            value = given.meta.get("val")
            if not isinstance(value, torch.Tensor):
                return self._number(value)
            sizes = self.sizes(value)
            if any(self.mentions(size) for size in sizes):
                raise Dependent(f"`{given.target}` is not known to keep rows apart along {self.label}")
            return Extent(self.unpadded_dims(sizes))
        if is_list(given):
            return [self.value(item) for item in given]
        return given

    def sizes(self, tensor: torch.Tensor) -> list[Any]:
        """Return the sizes of a fake tensor."""
        return [self._number(size) for size in tensor.shape]

    def unpadded_dims(self, sizes: list[Any]) -> tuple[Dim, ...]:
        """Return one factor per dim."""
        if any(not grows(size, self._symbol) for size in sizes):
            raise Dependent(f"a size does not grow with {self.label}")
        return tuple(() if size == 1 else ((size, self.mentions(size)),) for size in sizes)

    def mentions(self, size: Any) -> bool:
        """Whether a size depends on the padded one."""
        return self._symbol in getattr(size, "free_symbols", ())

    def _mentions(self, value: Any) -> bool:
        if isinstance(value, list):
            return any(self._mentions(item) for item in value)
        return not isinstance(value, Extent) and self.mentions(value)

    def _number(self, value: Any) -> Any:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._simplify(value.node.expr)
        return value


def _product(dim: Dim) -> Any:
    result: Any = 1
    for size, _ in dim:
        result = result * size
    return result


def _holds_tensor(value: Any) -> bool:
    return any(isinstance(item, torch.Tensor) for item in as_list(value))


def _place(node: fx.Node | None) -> str:
    """Return the user's line behind a node, where it is known."""
    text = getattr(node, "stack_trace", None) or ""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("File ")]
    return f" ({lines[-1]})" if lines else ""
