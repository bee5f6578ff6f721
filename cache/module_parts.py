"""Compare the `module` component of two keys, but for parts of the module that no trace of the stored entry reached."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from gearcache.cache.key import Plain

_SAME = "same as "


def is_alike(wanted: Plain, stored: Plain, unreached: Sequence[str]) -> bool:
    """Whether two modules are equal in all that a trace of the stored one reached.

    `unreached` are paths of modules of the stored one, each with all modules below it. The wanted one may lack them,
    and have others in their place. False for data of an unknown form.
    """
    try:
        ours, theirs = cast("dict[str, list[Plain]]", wanted), cast("dict[str, list[Plain]]", stored)
        if ours.keys() != theirs.keys():
            return False
        their_classes = [(str(path), name) for path, name in cast("list[list[str]]", theirs["classes"])]
        our_classes = [(str(path), name) for path, name in cast("list[list[str]]", ours["classes"])]
        reached = {path for path, _ in their_classes if not _is_below(path, unreached)}
        if [item for item in our_classes if item[0] in reached] != [
            item for item in their_classes if item[0] in reached
        ]:
            return False
        our_paths, their_paths = {path for path, _ in our_classes}, {path for path, _ in their_classes}
        return all(
            _tensors(cast("list[str]", ours[kind]), our_paths, reached)
            == _tensors(cast("list[str]", theirs[kind]), their_paths, reached)
            for kind in theirs
            if kind != "classes"
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return False


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)


def _tensors(rows: Sequence[str], paths: Collection[str], reached: Collection[str]) -> list[tuple[str, str, str]]:
    """Return name, description and first name of the tensors of reached modules, see `fingerprint.module_component`.

    A tensor at several places has one description; its first name is that of its first place in a reached module.
    """
    descriptions = [_split(row, paths) for row in rows]
    first_names: dict[int, str] = {}
    tensors = []
    for index, (text, name) in enumerate(descriptions):
        original = int(text.removeprefix(_SAME)) if text.startswith(_SAME) else index
        if name.rpartition(".")[0] in reached:
            tensors.append((name, descriptions[original][0], first_names.setdefault(original, name)))
    return tensors


def _split(row: str, paths: Collection[str]) -> tuple[str, str]:
    """Return the description and the name in a row; `ValueError` if more than one reading is possible.

    Both may contain the separator: a name is one below a module that is there.
    """
    parts = row.split(": ")
    readings = [
        (": ".join(parts[:cut]), name)
        for cut in range(1, len(parts))
        if (name := ": ".join(parts[cut:])).rpartition(".")[0] in paths
    ]
    if len(readings) != 1:
        raise ValueError(f"a row with {len(readings)} readings")
    return readings[0]
