"""Short names of gears for people: the full text of a gear names all its dims, its short name only the distinguishing
ones.

Gears are stored and compared by the full text; nothing is looked up by a short name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

_TERM = re.compile(r"(?P<path>.+?)(?P<dim>\.size\([0-9]+\))=(?P<size>[0-9]+(?: to [0-9]+)?)(?:, |\Z)", re.DOTALL)
#: An index in a path: a number, a key in quotes, or the `*` of a gear spec.
_INDEX = re.compile(r"\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]]*)\]", re.DOTALL)
#: With more dims than these, the smallest distinguishing subset is not searched exhaustively.
_MOST_TRIED = 10


class _Dim(Struct, frozen=True):
    """A dim as named in texts; `skeleton` is the text without its indices."""

    text: str
    skeleton: str
    indices: tuple[str, ...]

    @classmethod
    def of(cls, path: str, dim: str) -> _Dim:
        return cls(path + dim, _INDEX.sub("[]", path) + dim, tuple(_INDEX.findall(path)))

    def is_like(self, other: _Dim, fixed: Collection[int]) -> bool:
        """Return whether its path differs from another one only in indices at places that are not fixed."""
        return self.skeleton == other.skeleton and all(self.indices[at] == other.indices[at] for at in fixed)

    def folded(self, fixed: Collection[int]) -> str:
        """Return its text with `[*]` at all places that are not fixed."""
        places = itertools.count()
        return _INDEX.sub(lambda match: match[0] if next(places) in fixed else "[*]", self.text)


class _Tied(Struct, frozen=True):
    """Dims that have equal sizes in each gear: the place of the naming dim, its name, and the size by gear."""

    place: int
    name: str
    sizes: tuple[str, ...]
    is_plain: bool


def short_names(texts: Iterable[str]) -> dict[str, str]:
    """Return full text -> short name for the gears of a method; different texts get different names.

    A name has the fewest dims that distinguish the gears, in the order of the text; of dims with equal sizes in every
    gear it has the first one. A single gear is named by one dim for each of its sizes. A text that is not a list of
    sizes is its own name.
    """
    names = {text: text for text in texts}
    for dims, sizes_by_text in _by_dims(names).items():
        tied = _tied(dims, list(sizes_by_text.values()))
        names.update(
            _names(tied if len(sizes_by_text) == 1 else _distinguishing(tied, len(sizes_by_text)), sizes_by_text)
        )
    return _distinct(names)


def by_short_name(calls: Mapping[str, int]) -> dict[str, int]:
    """Return a count of each gear by its short name."""
    return {name: calls[text] for text, name in short_names(calls).items()}


def sizes_name(text: str, gears: Iterable[str] = ()) -> str:
    """Return a name for sizes that are not a gear, or for a gear where the others are unknown.

    It names all dims that vary, or that differ in size from the gears; without gears it names all dims except those
    that differ from others only in an index.
    """
    dims, sizes = _terms(text)
    sizes_by_text = _by_dims([text, *gears]).get(dims, {})
    if not sizes_by_text:
        return text
    tied = _tied(dims, list(sizes_by_text.values()), is_across=len(sizes_by_text) > 1)
    return _names(_varying(tied), {text: sizes})[text]


def _distinct(names: dict[str, str]) -> dict[str, str]:
    """Use the full text for all but one of the gears that share a name: other dims, such as size 1 of a range."""
    while len(set(names.values())) < len(names):
        owners: dict[str, str] = {}
        for text, name in names.items():
            owners[name] = text if text == name else owners.get(name, text)
        names = {text: name if owners[name] == text else text for text, name in names.items()}
    return names


def _terms(text: str) -> tuple[tuple[_Dim, ...], tuple[str, ...]]:
    """Return the dims of a text and their sizes; empty for a text of another form."""
    dims, sizes, at = [], [], 0
    while at < len(text) and not text.endswith(", "):
        term = _TERM.match(text, at)
        if term is None:
            return (), ()
        dims.append(_Dim.of(term["path"], term["dim"]))
        sizes.append(term["size"])
        at = term.end()
    return tuple(dims), tuple(sizes)


def _by_dims(texts: Iterable[str]) -> dict[tuple[_Dim, ...], dict[str, tuple[str, ...]]]:
    sizes_by_dims: dict[tuple[_Dim, ...], dict[str, tuple[str, ...]]] = {}
    for text in texts:
        dims, sizes = _terms(text)
        if dims:
            sizes_by_dims.setdefault(dims, {})[text] = sizes
    return sizes_by_dims


def _tied(dims: Sequence[_Dim], rows: Sequence[tuple[str, ...]], *, is_across: bool = True) -> list[_Tied]:
    """Return the dims with equal sizes; unless `is_across`, only dims that differ in an index are joined."""
    places: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for place, sizes in enumerate(zip(*rows, strict=True)):
        places.setdefault((sizes, "" if is_across else dims[place].skeleton), []).append(place)
    tied_dims = []
    for (sizes, _), group in places.items():
        first = next((place for place in group if not dims[place].indices), group[0])
        tied_dims.append(_Tied(first, _name(dims, group, first), sizes, not dims[first].indices))
    return sorted(tied_dims, key=lambda tied: tied.place)


def _name(dims: Sequence[_Dim], group: Sequence[int], first: int) -> str:
    """Return the name of tied dims: the first one's, with `[*]` where others differ from it only in an index."""
    naming_dim = dims[first]
    alike = [dims[place] for place in group if dims[place].skeleton == naming_dim.skeleton]
    fixed = [at for at in range(len(naming_dim.indices)) if len({dim.indices[at] for dim in alike}) == 1]
    # `[*]` claims that all such dims have this size, so it must cover only tied dims.
    is_true = all(place in group for place, dim in enumerate(dims) if dim.is_like(naming_dim, fixed))
    return naming_dim.folded(fixed) if is_true else naming_dim.text


def _varying(tied: Sequence[_Tied]) -> list[_Tied]:
    return [each for each in tied if len(set(each.sizes)) > 1] or list(tied)


def _distinguishing(tied: Sequence[_Tied], gears: int) -> list[_Tied]:
    """Return the fewest dims that distinguish all gears; of equally few, those without an index and at the front."""
    patterns: dict[tuple[int, ...], _Tied] = {}
    for each in sorted(_varying(tied), key=lambda each: (not each.is_plain, each.place)):
        numbers: dict[str, int] = {}
        patterns.setdefault(tuple(numbers.setdefault(size, len(numbers)) for size in each.sizes), each)
    rest = list(patterns.values())
    subset: Sequence[_Tied] = rest
    if len(rest) <= _MOST_TRIED:
        few = (few for count in range(1, len(rest)) for few in itertools.combinations(rest, count))
        subset = next((each for each in few if _count_distinct(each) == gears), rest)
    else:
        for each in reversed(rest):
            less = [other for other in subset if other is not each]
            subset = less if _count_distinct(less) == gears else subset
    return sorted(subset, key=lambda each: each.place)


def _count_distinct(tied_dims: Sequence[_Tied]) -> int:
    return len(set(zip(*(each.sizes for each in tied_dims), strict=True)))


def _names(tied_dims: Sequence[_Tied], sizes_by_text: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {
        text: ", ".join(f"{each.name}={sizes[each.place]}" for each in tied_dims)
        for text, sizes in sizes_by_text.items()
    }
