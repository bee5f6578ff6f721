"""Shows how two stored entries differ: in the leaves of their keys, and in what their traces depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gearcache.cache.manifest import Manifest
from gearcache.readable.entry import understood, variants_of
from gearcache.readable.variant import check_lines, cut, evidence_lines, source_lines

_MISSING = "missing"


def differences(wanted: Any, stored: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (path, wanted, stored) of every leaf that differs; rows such as parameters are compared by name."""
    ours, theirs = _children(wanted), _children(stored)
    if ours is None or theirs is None:
        if _are_texts(wanted) and _are_texts(stored):
            # For long lists (instruction sets), the items of only one side are more useful than both lists.
            yield from _text_differences(path, wanted, stored)
            return
        if (type(wanted), wanted) != (type(stored), stored):
            yield path, _show(wanted), _show(stored)
        return
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        below = f"{path}.{name}" if path else str(name)
        if name not in theirs or name not in ours:
            yield below, _show(ours.get(name, _MISSING)), _show(theirs.get(name, _MISSING))
        else:
            yield from differences(ours[name], theirs[name], below)


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(type(item) is str for item in value)


def _text_differences(path: str, wanted: list[str], stored: list[str]) -> Iterator[tuple[str, str, str]]:
    ours = [item for item in wanted if item not in stored]
    theirs = [item for item in stored if item not in wanted]
    if ours or theirs:
        more, less = (f"also {cut(side)}" if side else "no more" for side in (ours, theirs))
        yield path, more, less
    elif wanted != stored:
        yield path, _show(wanted), _show(stored)


def _children(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, dict):
        return value
    if not isinstance(value, (list, tuple)):
        return None
    rows = [item for item in value if isinstance(item, (list, tuple)) and item and type(item[0]) is str]
    if value and len(rows) == len(value) and len({row[0] for row in rows}) == len(rows):
        return {row[0] or "<root>": list(row[1:]) for row in rows}
    is_leaf = all(not isinstance(item, (list, tuple, dict)) for item in value)
    return None if is_leaf else dict(enumerate(value))


def _show(value: Any) -> str:
    return value if value is _MISSING else cut(value)


def differing_lines(wanted: Manifest, stored: Manifest) -> Iterator[str]:
    """Yield the lines that only one entry has: evidence, per-call checks and sources of all its variants."""
    ours, theirs = _dependences(wanted), _dependences(stored)
    yield from (f"only wanted: {line}" for line in ours if line not in theirs)
    yield from (f"only stored: {line}" for line in theirs if line not in ours)


def _dependences(manifest: Manifest) -> dict[str, None]:
    all_lines: dict[str, None] = {}
    with understood(manifest):
        for variant in variants_of(manifest):
            for lines in (check_lines(variant), evidence_lines(variant), source_lines(variant)):
                all_lines.update(dict.fromkeys(lines))
    return all_lines
