"""Which graphs serve a call like a given one: the same, except that its geared dims have the sizes of their gear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from msgspec import Struct

from gearcache.guards.access import Access, Scope
from gearcache.guards.dispatch.inputs import broken_condition, find_problem
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput, StoredVariant
from gearcache.guards.evidence.relations import numbers_text
from gearcache.guards.gears.expressions import holds
from gearcache.guards.gears.spec import Axis, GearSpec, gear_text


class OtherSize(Struct, frozen=True):
    """A dim for which a graph has another size than such a call."""

    path: str
    dim: int
    stored: int
    size: int

    @property
    def text(self) -> str:
        """The dim and both sizes, in words."""
        return f"`{self.path}.size({self.dim})` is {self.size}, its graph is for {self.stored}"


class SizeRelation(Struct, frozen=True):
    """Conditions on ints and sizes that each call compares (`n < x.size(0)`), and their values in a call."""

    #: For people.
    text: str
    conditions: list[str]
    values: dict[str, int]
    #: By name: the input and the dim of those that are sizes of inputs.
    sizes: dict[str, tuple[int, int]]

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether the conditions hold for tensors of other sizes."""
        values = self.values | {name: tensors[index].size(dim) for name, (index, dim) in self.sizes.items()}
        return all(holds(text, values) for text in self.conditions)


class CallValues(Struct, frozen=True):
    """The values of a call for one variant."""

    #: One per input.
    tensors: Sequence[torch.Tensor]
    #: By name, the path of each number of the variant, as text, and its value.
    numbers: Mapping[str, tuple[str, float]]
    relations: Sequence[SizeRelation] = ()

    def broken_relation(self, tensors: Sequence[torch.Tensor]) -> str:
        """Return the first relation that does not hold for tensors of other sizes; empty if all do."""
        return next((relation.text for relation in self.relations if not relation.holds(tensors)), "")


def size_relations(variant: StoredVariant, scope: Scope) -> list[SizeRelation]:
    """Return what a variant compares of ints and sizes, with the values of a call that it takes."""
    indices = {stored.access: index for index, stored in enumerate(variant.inputs)}
    relations = []
    for check in variant.call_checks:
        if check.kind != "numbers":
            continue
        conditions, named = check.expected
        places = {str(name): Access.from_plain(path) for name, path in named}
        sizes = {
            name: (indices[base], dim)
            for name, place in places.items()
            for base, dim in [_size_of(place)]
            if base in indices
        }
        if sizes:
            values = {name: place.resolve(scope) for name, place in places.items() if name not in sizes}
            relations.append(SizeRelation(numbers_text(check.expected), list(conditions), values, sizes))
    return relations


def _size_of(place: Access) -> tuple[Access | None, int]:
    kind, dim = place.steps[-1] if place.steps else ("", 0)
    return (Access(place.root, place.steps[:-1]), dim) if kind == "size" else (None, 0)


class GearFit(Struct, frozen=True):
    """A graph, and whether it serves a call, or such a call at the sizes of the graph's gear."""

    gear: StoredGear
    #: Whether it takes the call as it is.
    is_exact: bool
    #: Whether only sizes, strides and conditions can keep it from such calls; with gears, it has to be of one of them.
    is_like: bool
    other_sizes: tuple[OtherSize, ...] = ()
    broken: str = ""

    @property
    def obstacle(self) -> str:
        """Why it does not take the call at the sizes of its gear, in words; empty if it does, or is not alike."""
        return self.other_sizes[0].text if self.other_sizes else self.broken

    def serves(self, spec: GearSpec) -> bool:
        """Whether it takes the call, or if the spec has gears, the call at the sizes of its gear."""
        return self.is_exact or (bool(spec.axes) and self.is_like and not self.obstacle)


def gear_fits(
    variant: StoredVariant,
    spec: GearSpec,
    sizes: Sequence[int],
    values: CallValues,
) -> Iterator[GearFit]:
    """Yield how each graph of a variant fits a call with some values, and whose geared dims have some sizes.

    Strides are not compared at other gears, as a call of other strides gets a graph of its own gear alone
    (`WantedGraph.is_alone`).
    """
    inputs, tensors, numbers = variant.inputs, values.tensors, values.numbers
    problems = [find_problem(inputs, gear, tensors) for gear in variant.gears]
    exact = [
        problem is None and broken_condition(inputs, gear, tensors, numbers) is None
        for gear, problem in zip(variant.gears, problems, strict=True)
    ]
    targets = {gear_text(spec, gear): gear for gear in spec.gears}
    for gear, problem, is_exact in zip(variant.gears, problems, exact, strict=True):
        is_like = problem is None or problem.kind in ("shape", "stride")
        target = targets.get(gear.text)
        if target is None or not is_like or not _has_ranks(gear, tensors):
            yield GearFit(gear, is_exact, is_like and not spec.axes)
            continue
        # A trace that takes the call itself relates its dims as the call does.
        moved = _Moved(spec.axes, sizes, target, follows_all=any(exact))
        others = tuple(
            OtherSize(stored.access.text, dim, stored_size, size)
            for stored, gear_sizes, tensor in zip(inputs, gear.sizes, tensors, strict=True)
            for dim, (stored_size, size) in enumerate(zip(gear_sizes, tensor.shape, strict=True))
            if stored_size is not None and not moved.may_be(stored, dim, size, stored_size)
        )
        broken = "" if others else _broken(inputs, gear, values, moved)
        yield GearFit(gear, is_exact, is_like, others, broken)


def _has_ranks(gear: StoredGear, tensors: Sequence[torch.Tensor]) -> bool:
    return all(tensor.dim() == len(dims) for dims, tensor in zip(gear.sizes, tensors, strict=True))


class _Moved:
    """The geared dims of a call, moved to another gear; other dims of equal size may follow them."""

    def __init__(self, axes: Sequence[Axis], sizes: Sequence[int], target: Sequence[int], *, follows_all: bool) -> None:
        self._axes = axes
        self._target = target
        self._pairs = set(zip(sizes, target, strict=False))
        self._follows_all = follows_all

    def declared(self, stored: StoredInput, dim: int) -> int | None:
        """Return the size of a geared dim at the gear; None for another dim."""
        for axis, size in zip(self._axes, self._target, strict=True):
            if axis.dim == dim and axis.matches(stored.access.text):
                return size
        return None

    def may_be(self, stored: StoredInput, dim: int, size: int, stored_size: int) -> bool:
        """Return whether a dim that has a size in the call has the stored size at the gear."""
        declared = self.declared(stored, dim)
        if declared is not None:
            return stored_size == declared
        return stored_size == size or self._follows_all or (size, stored_size) in self._pairs

    def free(self, stored: StoredInput, dim: int, size: int, *, follows: bool) -> int:
        """Return the size at the gear of a dim that is dynamic in the graph."""
        declared = self.declared(stored, dim)
        if declared is not None:
            return declared
        return next((target for own, target in self._pairs if own == size), size) if follows else size


def _broken(
    inputs: Sequence[StoredInput],
    gear: StoredGear,
    values: CallValues,
    moved: _Moved,
) -> str:
    """Return the condition of a graph that such a call breaks at its gear; empty if none."""
    if not gear.conditions and not gear.contiguous and not values.relations:
        return ""
    problem = None
    for follows in (False, True):
        moved_tensors = [
            _like(
                tensor,
                [
                    moved.free(stored, dim, size, follows=follows) if stored_size is None else stored_size
                    for dim, (stored_size, size) in enumerate(zip(gear_sizes, tensor.shape, strict=True))
                ],
            )
            for stored, gear_sizes, tensor in zip(inputs, gear.sizes, values.tensors, strict=True)
        ]
        problem = broken_condition(inputs, gear, moved_tensors, values.numbers)
        if (problem is None or problem.kind == "stride") and (text := values.broken_relation(moved_tensors)):
            return text
        if problem is None or problem.kind == "stride":
            return ""
    assert problem is not None
    return f"`{problem.argument}` is {problem.value}, allowed: {problem.allowed}"


def _like(tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Return a tensor without memory, of another shape and the stride order of a given one."""
    return torch.empty_strided(shape, like_strides(tensor, shape), dtype=tensor.dtype, device="meta")


def like_strides(tensor: torch.Tensor, shape: Sequence[int]) -> list[int]:
    """Return the strides of a dense tensor of another shape, in the stride order of a given one."""
    order = sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), -dim))
    strides, step = [0] * tensor.dim(), 1
    for dim in order:
        strides[dim] = step
        step *= max(1, shape[dim])
    return strides
