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
from gearcache.guards.gears.symbol import MAX_GEARS, SizeExpression, Symbol
from gearcache.telemetry.size_lists import best_lists, work_of

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
    def number(self) -> int:
        """How many gears these are."""
        return math.prod(map(len, self.sizes.values()))

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
        size_texts = "; ".join(f"{name}: {sizes}" for name, sizes in self.sizes.items())
        text = f"{size_texts} ({self.padded:.1%} of the work of {self.calls} calls is padding)"
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
) -> SuggestedGears:
    """Return at most `k` gears for shapes (sizes of `dims` -> calls); `GearSpecError` if there are no shapes.

    `gears` are the current ones over these dims, None if they leave one open. A relation between dims must hold in
    `all_shapes`.
    """
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_GEARS:
        raise GearSpecError(f"suggest_gears: k is {k!r}; it must be an int from 1 to {MAX_GEARS}")
    counted = {shape: calls for shape, calls in shapes.items() if calls and all(size > 0 for size in shape)}
    if not counted or not dims:
        raise GearSpecError(
            "suggest_gears: no shapes were met yet; call the method first (a method without gears counts its shapes "
            "with CompilerConfig(count_shapes=True))"
        )
    is_open = [bool(gears) and all(gear[index] is None for gear in gears) for index in range(len(dims))]
    fixed = _fixed(is_open, counted, gears)
    free = [index for index in range(len(dims)) if not is_open[index] and index not in fixed]
    checked_shapes = (
        counted if all_shapes is None else [shape for shape in all_shapes if all(size > 0 for size in shape)]
    )
    followed = _followed(free, list(checked_shapes), gears)
    varying = [index for index in free if followed[index] is None and len({shape[index] for shape in counted}) > 1]
    if not varying and not fixed:
        varying = free[:1]
    counts: dict[Shape, int] = {}
    for shape, calls in counted.items():
        own_sizes = tuple(shape[index] for index in varying)
        counts[own_sizes] = counts.get(own_sizes, 0) + calls
    lists = {index: [size] for index, size in fixed.items()}
    if varying:
        lists.update(zip(varying, best_lists(counts, k), strict=True))
    owners = sorted(lists)
    totals: dict[Shape, int] = {}
    for shape, calls in counted.items():
        own_sizes = tuple(shape[index] for index in owners)
        totals[own_sizes] = totals.get(own_sizes, 0) + calls
    sizes = {f"{dims[index][0]}.size({dims[index][1]})": lists[index] for index in owners}
    least_work = sum(calls * math.prod(shape) for shape, calls in totals.items())
    return SuggestedGears(
        _gears(dims, lists, followed, is_open),
        sizes,
        sum(totals.values()),
        round(work_of(totals, [lists[index] for index in owners])),
        least_work,
        tuple(f"{path}.size({dim})" for (path, dim), is_open_dim in zip(dims, is_open, strict=True) if is_open_dim),
    )


def _gears(
    dims: Sequence[tuple[str, int]],
    lists: Mapping[int, list[int]],
    followed: Mapping[int, _Relation | None],
    is_open: Sequence[bool],
) -> dict[str, dict[int, Any]]:
    """Return the argument for `cache_compile`: a single list, or symbols, which form a product."""
    symbols = {index: Symbol(f"n{number}", gears=lists[index]) for number, index in enumerate(sorted(lists))}
    relations = {
        index: relation for index, relation in followed.items() if relation is not None and relation[0] in symbols
    }
    is_single = len(lists) == 1 and not relations
    arguments: dict[str, dict[int, Any]] = {}
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
            arguments.setdefault(path, {})[dim] = size
    return arguments


def _fixed(is_open: Sequence[bool], shapes: Mapping[Shape, int], gears: Gears) -> dict[int, int]:
    """Return the single size of dims that have gears now, beside others, and had one size in all calls or are fixed."""
    columns = [{gear[index] for gear in gears} - {None} for index in range(len(is_open))]
    fixed_sizes: dict[int, int] = {}
    for index, column in enumerate(columns):
        if not column or sum(map(bool, columns)) < 2:
            continue
        sizes = {shape[index] for shape in shapes}
        declared = [size for size in column if size is not None and size >= max(sizes)] if len(column) == 1 else []
        if declared and (len(sizes) == 1 or any(len(other) > 1 for other in columns)):
            fixed_sizes[index] = declared[0]
        elif len(sizes) == 1:
            fixed_sizes[index] = max(sizes)
    return fixed_sizes


def _followed(indices: list[int], shapes: Sequence[Shape], gears: Gears) -> dict[int, _Relation | None]:
    """Return, for each dim, the earlier one that it follows, as (index, factor, offset), or None."""
    relations_by_index: dict[int, _Relation | None] = {}
    for index in indices:
        owners = [owner for owner, relation in relations_by_index.items() if relation is None]
        candidates = (_relation(index, owner, shapes, gears) for owner in owners)
        relations_by_index[index] = next((candidate for candidate in candidates if candidate is not None), None)
    return relations_by_index


def _relation(index: int, owner: int, shapes: Sequence[Shape], gears: Gears) -> _Relation | None:
    first = shapes[0]
    candidates = [(owner, 1, first[index] - first[owner])]
    if first[index] % first[owner] == 0:
        candidates.append((owner, first[index] // first[owner], 0))
    declared = [(gear[index], gear[owner]) for gear in gears]
    for relation in candidates:
        if all(_holds(relation, shape[index], shape[owner]) for shape in shapes) and all(
            size is not None and owner_size is not None and _holds(relation, size, owner_size)
            for size, owner_size in declared
        ):
            sizes = {shape[index] for shape in shapes}
            if len(sizes) >= LEAST_SIZES or (len(sizes) > 1 and len(set(declared)) >= LEAST_GEARS):
                return relation
    return None


def _holds(relation: _Relation, size: int, owner: int) -> bool:
    _, factor, offset = relation
    return size == factor * owner + offset


def _expression(symbol: Symbol, factor: int, offset: int) -> SizeExpression:
    scaled = symbol if factor == 1 else factor * symbol
    return scaled if offset == 0 else scaled + offset
