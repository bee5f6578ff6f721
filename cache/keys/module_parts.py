"""Compare the `module` component of two keys, but for parts of the module that no trace of the stored entry reached."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from gearcache.cache.keys.key import Plain

_SAME = "same as "


def unreached_in(wanted: Plain, stored: Plain, unreached: Sequence[str] | None) -> list[str] | None:
    """Return the modules of the wanted one that a trace of the stored one would not reach; None if others differ.

    `unreached` are paths of modules of the stored one that its trace did not reach, each with all modules below it. The
    wanted one may lack them, and have others in their place. None for data of an unknown form, too, and where it is not
    known what the trace did not reach.
    """
    if unreached is None:
        return None
    try:
        ours, theirs = cast("dict[str, list[Plain]]", wanted), cast("dict[str, list[Plain]]", stored)
        if ours.keys() != theirs.keys():
            return None
        our_classes, their_classes = _classes(ours), _classes(theirs)
        reached = {path for path in their_classes if not _is_below(path, unreached)}
        if _rows(our_classes, reached) != _rows(their_classes, reached):
            return None
        for kind in theirs.keys() - {"classes"}:
            our_rows = _tensors(cast("list[str]", ours[kind]), our_classes, reached)
            if our_rows != _tensors(cast("list[str]", theirs[kind]), their_classes, reached):
                return None
        return [path for path in our_classes if path not in reached and path.rpartition(".")[0] in reached]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None


def _classes(module: Mapping[str, Sequence[Plain]]) -> dict[str, str]:
    """Return the class of each module by its path; `ValueError` for one path of two modules: a name may have a dot."""
    rows = cast("list[list[str]]", module["classes"])
    classes = {str(path): str(name) for path, name in rows}
    if len(classes) < len(rows):
        raise ValueError("one path of two modules")
    return classes


def _rows(classes: Mapping[str, str], reached: Collection[str]) -> list[tuple[str, str]]:
    return [(path, name) for path, name in classes.items() if path in reached]


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
