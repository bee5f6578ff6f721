"""Proposes gears from traffic: the sizes that waste the least work on the recorded shapes.

The smallest gear that holds a call serves it, so the work of a call is the product of the gear's sizes
(`size_lists.py`). If a dim was always a multiple of another one, or larger by a constant, it follows that dim, if the
current gears or enough sizes show it and no current gear contradicts it. Dims that have gears now keep some, and dims
that the current gears leave open stay open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gearcache.errors import GearSpecError
from gearcache.guards.gears.sizes import MAX_GEARS
from gearcache.guards.gears.symbol import SizeExpression, Symbol
from gearcache.telemetry.size_lists import MOST_EFFORT, best_lists, work_of

#: The least sizes of a dim for its relation to another one to count, or the least gears that show the relation.
LEAST_SIZES = 4
LEAST_GEARS = 2
Shape = tuple[int, ...]
Gears = Sequence[tuple[int | None, ...]]
_Relation = tuple[int, int, int]


class SuggestedGears(Struct, frozen=True):
    """Gears for the recorded shapes; `gears` is an argument for `cache_compile`.

    `sizes`: the list of each dim that has its own. `open_dims` have none now and get none. `work` and `least_work`:
    rows computed with these gears and without padding, over `calls` calls.
    """

    gears: dict[str, dict[int, Any]]
    sizes: dict[str, list[int]]
    calls: int
    work: int
    least_work: int
    open_dims: tuple[str, ...] = ()
    #: How these gears differ from the current ones, in words; empty if the method has none.
    today: str = ""

    @property
    def padded(self) -> float:
        """The share of the work that is padding, from 0 to 1."""
        return 1 - self.least_work / self.work if self.work else 0.0

    @property
    def definitions(self) -> list[str]:
        """The symbols that `gears` refers to, as lines of Python."""
        return [f"{symbol} = {_source(symbol)}" for symbol in self._symbols()]

    @property
    def source(self) -> str:
        """`gears` as one Python expression, which needs only `Symbol` of gearcache."""
        names = {symbol: _source(symbol) for symbol in self._symbols()}
        rows = [
            f"{path!r}: {{{', '.join(f'{dim}: {_text(size, names)}' for dim, size in dims.items())}}}"
            for path, dims in self.gears.items()
        ]
        return f"{{{', '.join(rows)}}}"

    def _symbols(self) -> list[Symbol]:
        sizes = [size for dims in self.gears.values() for size in dims.values()]
        return list(dict.fromkeys(symbol for size in sizes if not isinstance(size, list) for symbol in size.symbols()))

    def __str__(self) -> str:
        listed = "; ".join(f"{name}: {sizes}" for name, sizes in self.sizes.items())
        text = f"{listed} ({self.padded:.1%} of the work of {self.calls} calls is padding)"
        return f"{text}; {self.today}" if self.today else text


def _source(symbol: Symbol) -> str:
    gears = f", gears={list(symbol.gears)}" if symbol.gears is not None else ""
    return f'Symbol("{symbol.name}"{gears})'


def _text(size: Any, names: Mapping[Symbol, str]) -> str:
    return size.text(names) if isinstance(size, SizeExpression) else repr(size)


def suggest(
    dims: Sequence[tuple[str, int]],
    shapes: Mapping[Shape, int],
    k: int,
    *,
    gears: Gears = (),
    all_shapes: Mapping[Shape, int] | None = None,
    effort: int = MOST_EFFORT,
) -> SuggestedGears:
    """Return at most `k` gears for shapes (sizes of `dims` -> calls); `GearSpecError` if there are no shapes.

    `gears` are the current ones over these dims, None if they leave one open. A relation between dims must hold in
    `all_shapes`. `effort` bounds how much is tried.
    """
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_GEARS:
        raise GearSpecError(f"suggest_gears: k is {k!r}; it must be an int from 1 to {MAX_GEARS}")
    met = {shape: calls for shape, calls in shapes.items() if calls and all(size > 0 for size in shape)}
    if not met or not dims:
        raise GearSpecError(
            "suggest_gears: no shapes were met yet; call the method first (a method without gears counts its shapes "
            "with CompilerConfig(count_shapes=True))"
        )
    is_open = [bool(gears) and all(gear[index] is None for gear in gears) for index in range(len(dims))]
    fixed = _fixed(is_open, met, gears)
    free = [index for index in range(len(dims)) if not is_open[index] and index not in fixed]
    every = met if all_shapes is None else [shape for shape in all_shapes if all(size > 0 for size in shape)]
    followed = _followed(free, list(every), gears)
    varying = [index for index in free if followed[index] is None and len({shape[index] for shape in met}) > 1]
    if not varying and not fixed:
        varying = free[:1]
    counts: dict[Shape, int] = {}
    for shape, calls in met.items():
        own = tuple(shape[index] for index in varying)
        counts[own] = counts.get(own, 0) + calls
    lists = {index: [size] for index, size in fixed.items()}
    if varying:
        lists.update(zip(varying, best_lists(counts, k, effort), strict=True))
    owners = sorted(lists)
    rows: dict[Shape, int] = {}
    for shape, calls in met.items():
        own = tuple(shape[index] for index in owners)
        rows[own] = rows.get(own, 0) + calls
    sizes = {f"{dims[index][0]}.size({dims[index][1]})": lists[index] for index in owners}
    least = sum(calls * math.prod(shape) for shape, calls in rows.items())
    return SuggestedGears(
        _gears(dims, lists, followed, is_open),
        sizes,
        sum(rows.values()),
        round(work_of(rows, [lists[index] for index in owners])),
        least,
        tuple(f"{path}.size({dim})" for (path, dim), found in zip(dims, is_open, strict=True) if found),
    )


def _gears(
    dims: Sequence[tuple[str, int]],
    lists: Mapping[int, list[int]],
    followed: Mapping[int, _Relation | None],
    is_open: Sequence[bool],
) -> dict[str, dict[int, Any]]:
    """Return the argument for `cache_compile`: a single list, or symbols, which form a product."""
    symbols = {index: Symbol(f"n{number}", gears=lists[index]) for number, index in enumerate(sorted(lists))}
    relations = {index: to for index, to in followed.items() if to is not None and to[0] in symbols}
    is_single = len(lists) == 1 and not relations
    found: dict[str, dict[int, Any]] = {}
    for index, (path, dim) in enumerate(dims):
        size: Any = None
        if index in symbols:
            size = lists[index] if is_single else symbols[index]
        elif index in relations:
            owner, factor, offset = relations[index]
            size = _expression(symbols[owner], factor, offset)
        elif is_open[index]:
            size = Symbol(f"any{index}")
        if size is not None:
            found.setdefault(path, {})[dim] = size
    return found


def _fixed(is_open: Sequence[bool], met: Mapping[Shape, int], gears: Gears) -> dict[int, int]:
    """Return the single size of dims that have gears now, beside others, and had one size in all calls or are fixed."""
    columns = [{gear[index] for gear in gears} - {None} for index in range(len(is_open))]
    found: dict[int, int] = {}
    for index, column in enumerate(columns):
        if not column or sum(map(bool, columns)) < 2:
            continue
        sizes = {shape[index] for shape in met}
        held = [size for size in column if size is not None and size >= max(sizes)] if len(column) == 1 else []
        if held and (len(sizes) == 1 or any(len(other) > 1 for other in columns)):
            found[index] = held[0]
        elif len(sizes) == 1:
            found[index] = max(sizes)
    return found


def _followed(indices: list[int], shapes: Sequence[Shape], gears: Gears) -> dict[int, _Relation | None]:
    """Return, for each dim, the earlier one that it follows, as (index, factor, offset), or None."""
    found: dict[int, _Relation | None] = {}
    for index in indices:
        owners = [owner for owner, before in found.items() if before is None]
        relations = (_relation(index, owner, shapes, gears) for owner in owners)
        found[index] = next((to for to in relations if to is not None), None)
    return found


def _relation(index: int, owner: int, shapes: Sequence[Shape], gears: Gears) -> _Relation | None:
    first = shapes[0]
    possible = [(owner, 1, first[index] - first[owner])]
    if first[index] % first[owner] == 0:
        possible.append((owner, first[index] // first[owner], 0))
    declared = [(gear[index], gear[owner]) for gear in gears]
    for to in possible:
        if all(_holds(to, shape[index], shape[owner]) for shape in shapes) and all(
            of is not None and by is not None and _holds(to, of, by) for of, by in declared
        ):
            met = {shape[index] for shape in shapes}
            if len(met) >= LEAST_SIZES or (len(met) > 1 and len(set(declared)) >= LEAST_GEARS):
                return to
    return None


def _holds(relation: _Relation, size: int, owner: int) -> bool:
    _, factor, offset = relation
    return size == factor * owner + offset


def _expression(symbol: Symbol, factor: int, offset: int) -> SizeExpression:
    scaled = symbol if factor == 1 else factor * symbol
    return scaled if offset == 0 else scaled + offset
