"""Sums the shapes of calls in all processes of a fleet, and proposes the gears that would serve them best."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from gearcache.errors import GearSpecError
from gearcache.guards.gears.symbol import MAX_GEARS
from gearcache.telemetry.method_shapes import Dims, Gears, MethodShapes, Shape
from gearcache.telemetry.suggest import SuggestedGears, suggest

#: The default number of proposed gears for a method that has none.
USUAL_GEARS = 8
#: A suggestion tries many lists; of more shapes only the most frequent ones and the largest are considered.
MOST_SHAPES = 400


class MethodTraffic(Struct):
    """One method over all processes that had the same class, dims and gears; other processes are not comparable."""

    method: str
    dims: Dims
    shapes: dict[Shape, int] = field(default_factory=dict)
    gears: Gears = ()
    full_name: str = ""
    processes: int = 0

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(self.shapes.values())


class Proposal(Struct, frozen=True):
    """Gears for the next release. Work is measured in rows: the product of the computed sizes.

    `unserved` calls fit into none of the current gears; `padded_now` is the share of padding in `work_now`, the current
    work over the calls that fit. `left_out` calls have shapes beyond the considered ones, or a dim of size 0. If
    `keeps` is set, the current gears are as good, and stay.
    """

    suggestion: SuggestedGears
    unserved: int
    work_now: int
    work_then: int
    padded_now: float | None
    left_out: int
    keeps: bool = False

    @property
    def saved(self) -> float | None:
        """The share of the current work that these gears save, over calls in current gears; None without any."""
        return 1 - self.work_then / self.work_now if self.work_now else None

    @property
    def against_today(self) -> str:
        """How these gears differ from the current ones, in words."""
        text = "today's gears are as good" if self.keeps else ""
        if not self.keeps and self.saved is not None:
            text = f"{abs(self.saved):.1%} {'less' if self.saved >= 0 else 'more'} work than with today's gears"
        if self.unserved:
            text += f"{', and ' if text else ''}{self.unserved} calls more are served"
        return text


def summed(method_shapes: Iterable[MethodShapes]) -> list[MethodTraffic]:
    """Add up the shapes of processes by method, class, dims and gears, the busiest first."""
    traffic: dict[tuple[str, str, Dims, Gears], MethodTraffic] = {}
    for shapes in method_shapes:
        gears = tuple(sorted(shapes.gears, key=lambda gear: [-1 if size is None else size for size in gear]))
        traffic_row = traffic.setdefault(
            (shapes.method, shapes.full_name, shapes.dims, gears),
            MethodTraffic(shapes.method, shapes.dims, gears=gears, full_name=shapes.full_name),
        )
        for shape, calls in shapes.shapes.items():
            traffic_row.shapes[shape] = traffic_row.shapes.get(shape, 0) + calls
        traffic_row.processes += 1
    return sorted(traffic.values(), key=lambda row: (-row.calls, row.method, row.full_name, row.dims, repr(row.gears)))


def propose(traffic: MethodTraffic, k: int | None = None) -> Proposal:
    """Return at most `k` gears for the recorded shapes; None means as many as there are now. `GearSpecError` if there
    are no shapes."""
    considered = _most_frequent(
        {shape: calls for shape, calls in traffic.shapes.items() if calls and all(size > 0 for size in shape)}
    )
    number = k if k is not None else min(len(traffic.gears) or USUAL_GEARS, MAX_GEARS)
    try:
        suggestion = suggest(traffic.dims, considered, number, gears=traffic.gears, all_shapes=traffic.shapes)
    except (AssertionError, ZeroDivisionError) as error:  # the data contains impossible sizes
        raise GearSpecError(f"suggest_gears: no gears fit these shapes: {error}") from error
    indices = {f"{path}.size({dim})": index for index, (path, dim) in enumerate(traffic.dims)}
    owners = [(indices[name], sizes) for name, sizes in suggestion.sizes.items()]
    unserved = work_now = work_then = least_work = 0
    for shape, calls in considered.items():
        fitting = [gear for gear in traffic.gears if _holds(gear, shape)]
        if not fitting:
            unserved += calls
            continue
        least_work += calls * math.prod(shape[index] for index, _ in owners)
        work_now += calls * min(_rows(gear, shape, owners) for gear in fitting)
        work_then += calls * math.prod(min(size for size in sizes if size >= shape[index]) for index, sizes in owners)
    saves = work_then < work_now or unserved > 0
    proposal = Proposal(
        suggestion,
        unserved if traffic.gears else 0,
        work_now,
        work_then,
        1 - least_work / work_now if work_now else None,
        traffic.calls - sum(considered.values()),
        keeps=bool(traffic.gears) and not saves and number >= len(traffic.gears),
    )
    return replace(proposal, suggestion=replace(suggestion, today=proposal.against_today))


def _most_frequent(shapes: dict[Shape, int]) -> dict[Shape, int]:
    """Return the most frequent shapes, and the largest one of each dim, which must fit as well."""
    if len(shapes) <= MOST_SHAPES:
        return shapes
    largest = {max(shapes, key=lambda shape: shape[index]) for index in range(len(next(iter(shapes))))}
    ordered = sorted(shapes, key=lambda shape: (shape not in largest, -shapes[shape], shape))
    return {shape: shapes[shape] for shape in ordered[:MOST_SHAPES]}


def _holds(gear: tuple[int | None, ...], shape: Shape) -> bool:
    return all(size is None or size >= call_size for size, call_size in zip(gear, shape, strict=True))


def _rows(gear: tuple[int | None, ...], shape: Shape, owners: list[tuple[int, list[int]]]) -> int:
    return math.prod(shape[index] if gear[index] is None else gear[index] or 0 for index, _ in owners)
