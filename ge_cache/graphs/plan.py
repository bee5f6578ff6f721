"""Plan the gears that one capture covers, and the sizes of every input at each."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gearcache.errors import GearSpecError
from gearcache.ge_cache.capture.captured import Capture, CapturedInput
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.graphs.number_inputs import GearSymbols
from gearcache.guards.access import Access
from gearcache.guards.gears.parse import Axis, GearSpec, RangeAxis, gear_text


class PlannedGear(Struct, frozen=True):
    """One gear: its size per axis, and the value of every symbol that an axis fixes."""

    sizes: tuple[int, ...]
    assignment: dict[Any, int]
    broken: str | None
    #: Input dims `(input, dim)` that follow the gear although the trace does not relate them.
    assumed: list[list[int]]
    #: Whether the trace takes the ints of its call at the gear, too; else it takes other ints there (`n < x.size(0)`).
    takes_call: bool = True

    def text(self, spec: GearSpec) -> str:
        """Return the gear as messages name it, e.g. `ids.size(0)=4`."""
        return gear_text(spec, self.sizes)


def plan_gears(capture: Capture, symbols: Symbols, spec: GearSpec) -> list[PlannedGear]:
    """Return every gear of the spec that can exist, in order, with the reason if the trace does not hold there.

    `GearSpecError`: a path that names no tensor input, a dim that does not exist or that the trace fixed, or (with
    `zip`) two dims that the trace proved equal and a gear makes different. With `product` such gears are left out.
    """
    columns = [[item.sizes[axis.dim] for item in matching_inputs(capture, axis)] for axis in spec.axes]
    gears = []
    for gear in spec.gears:
        conflict, assignment, fixed = _assign(spec, columns, gear, symbols)
        if conflict is not None:
            if spec.leaves_out:
                continue
            raise GearSpecError(f"`{capture.method}`: gear {gear_text(spec, gear)} cannot exist: {conflict}")
        assumed = _tie_like_dims(capture, spec, columns, gear, symbols, assignment)
        broken = fixed or _in_words(symbols.broken(assignment), capture)
        planned = PlannedGear(gear, assignment, broken, assumed)
        if broken is None and capture.numbers:
            at_gear = GearSymbols(capture, symbols, assignment)
            broken = None if at_gear.is_possible else "no ints of the call meet its conditions there"
            planned = replace(planned, broken=broken, takes_call=at_gear.takes_call)
        gears.append(planned)
    if not gears:
        raise GearSpecError(f"`{capture.method}`: no gear of the spec fits: the trace ties all combinations apart")
    return gears


def _in_words(condition: str | None, capture: Capture) -> str | None:
    """Return a condition on symbols with the names of their dims."""
    if condition is None:
        return None
    dim_names: dict[str, str] = {}
    for item in capture.inputs:
        for dim, size in enumerate(item.sizes):
            dim_names.setdefault(str(size), f"{item.access.text}.size({dim})")
    return re.sub(r"\b[su]\d+\b", lambda match: dim_names.get(match[0], match[0]), condition)


def matching_inputs(capture: Capture, axis: Axis | RangeAxis) -> list[CapturedInput]:
    """Return the inputs that an axis names; `GearSpecError` when none exists, or none has such a dim."""
    matching = [item for item in capture.inputs if any(map(axis.matches, _names(capture, item)))]
    if not matching:
        names = ", ".join(item.access.text for item in capture.inputs) or "none of its arguments"
        raise GearSpecError(
            f"`{capture.method}`: gears name `{axis.path}`, which is no tensor that the method computes with; "
            f"it computes with {names}"
        )
    for item in matching:
        if axis.dim >= len(item.sizes):
            raise GearSpecError(
                f"`{capture.method}`: gears name dim {axis.dim} of `{item.access.text}`, of {len(item.sizes)} dims"
            )
    return matching


def _names(capture: Capture, item: CapturedInput) -> list[str]:
    """Return the paths of an input: the trace knows a tensor passed for two arguments by one path."""
    pairs = [
        (check.access.text, Access.from_plain(check.expected).text)
        for check in (*capture.checks, *capture.tensor_checks)
        if check.kind == "same"
    ]
    names = [item.access.text]
    for name in names:
        names += [alias for pair in pairs if name in pair for alias in pair if alias not in names]
    return names


def _assign(
    spec: GearSpec, columns: list[list[Any]], gear: tuple[int, ...], symbols: Symbols
) -> tuple[str | None, dict[Any, int], str | None]:
    """Return (conflict between axes, symbol values, condition of the trace that the gear breaks)."""
    assignment: dict[Any, int] = {}
    owners: dict[Any, Axis] = {}
    fixed: str | None = None
    for axis, expressions, size in zip(spec.axes, columns, gear, strict=True):
        for expression in expressions:
            simple = symbols.simplify(expression)
            if isinstance(simple, int):
                if simple != size:
                    fixed = f"{axis.text} == {simple}"
                continue
            if not simple.is_Symbol:
                solved = _solve(simple, size)
                if solved is None:
                    return f"{axis.text} is {simple} of the traced sizes", {}, None
                simple, size_of_symbol = solved
            else:
                size_of_symbol = size
            earlier = assignment.setdefault(simple, size_of_symbol)
            if earlier != size_of_symbol:
                owner = owners[simple]
                return f"{axis.text} and {owner.text} are equal in every call", {}, None
            owners.setdefault(simple, axis)
    return None, assignment, fixed


def _tie_like_dims(
    capture: Capture,
    spec: GearSpec,
    columns: list[list[Any]],
    gear: tuple[int, ...],
    symbols: Symbols,
    assignment: dict[Any, int],
) -> list[list[int]]:
    """Let free dims follow a gear: those of an argument with the axis' index and traced size.

    Returns those dims. The batch of a padding mask that is read by advanced indexing is one: nothing in the trace
    compares it with that of `ids`.
    """
    proven = set(assignment)
    assumed: list[list[int]] = []
    for index, item in enumerate(capture.inputs):
        if item.access.root[0] != "argument":
            continue
        for dim, size in enumerate(item.sizes):
            simple = symbols.simplify(size)
            if isinstance(simple, int) or not simple.is_Symbol or simple in proven:
                continue
            if simple in assignment:
                assumed.append([index, dim])
                continue
            for axis, column, gear_size in zip(spec.axes, columns, gear, strict=True):
                if axis.dim == dim and symbols.value(column[0], {}) == symbols.hint(simple):
                    assignment[simple] = gear_size
                    assumed.append([index, dim])
                    break
    return assumed


def _solve(expression: Any, size: int) -> tuple[Any, int] | None:
    import sympy

    free = list(expression.free_symbols)
    if len(free) != 1:
        return None
    solutions = sympy.solve(sympy.Eq(expression, size), free[0])
    if len(solutions) == 1 and solutions[0].is_Integer:
        return free[0], int(solutions[0])
    return None
