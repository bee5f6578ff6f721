"""Which files of a folder `dynamo_export` has written: a list that lies in the folder with them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gearcache.cache.atomic import descriptor_digest

MANIFEST = ".gearcache-export.json"
_VERSION = 1
#: Files that users are told to fill in by hand; what they have changed is theirs.
_EDITED_BY_HAND = ".json"


@dataclass(frozen=True)
class Exported:
    """A file of an export: the rank that wrote it (None without ranks), and the sha256 of one that may be edited."""

    rank: int | None
    sha256: str | None


def walk(folder: Path, below: str = "") -> Iterator[str]:
    """Yield the names of all files in a folder, and of empty folders with a `/` at the end; links are files.

    Names are relative, and the manifest is none of them. `OSError` for what cannot be read.
    """
    with os.scandir(folder / below) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    if not found and below:
        yield below
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from walk(folder, f"{below}{entry.name}/")
        elif below or entry.name != MANIFEST:
            yield f"{below}{entry.name}"


def describe(folder: Path, owners: Mapping[str, int | None]) -> dict[str, Exported]:
    """Return what an export has just written, by name; `owners` are the ranks."""
    return {name: Exported(rank, digest(folder, name)) for name, rank in owners.items()}


def digest(folder: Path, name: str) -> str | None:
    """Return the sha256 of a file that users may edit; None for others."""
    if not name.endswith(_EDITED_BY_HAND):
        return None
    descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return descriptor_digest(descriptor)
    finally:
        os.close(descriptor)


def is_edited(folder: Path, name: str, exported: Exported) -> bool:
    """Whether a file is no longer what the export wrote."""
    path = folder / name
    if path.is_symlink() or not path.is_file():
        return True
    return exported.sha256 is not None and digest(folder, name) != exported.sha256


def write_manifest(folder: Path, files: Mapping[str, Exported]) -> None:
    """Write the list; readers of the folder see it only once the folder is in its place."""
    rows = {name: {"rank": item.rank, "sha256": item.sha256} for name, item in sorted(files.items())}
    (folder / MANIFEST).write_text(json.dumps({"version": _VERSION, "files": rows}, indent=1))


def read_manifest(folder: Path) -> dict[str, Exported]:
    """Return what the list in a folder names; nothing where there is none that can be read."""
    try:
        found = json.loads((folder / MANIFEST).read_text())
        if found["version"] != _VERSION:
            return {}
        return {name: Exported(row["rank"], row["sha256"]) for name, row in found["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def kept_files(
    target: Path, new: Path, fresh: dict[str, Exported], ranks: Collection[int | None], world: int
) -> tuple[list[str], dict[str, Exported]]:
    """Return the files of `target` that stay when `new` takes its place, and the files of exports there then.

    These are the files of other ranks of a job of `world` ranks, those that no export wrote, and those that a user has
    edited since where this export would write again what he started from. `FileExistsError` names a file that cannot
    stay, because this export writes another one in its place.
    """
    old = read_manifest(target)
    kept, exported = [], dict(fresh)
    for name in walk(target):
        known = old.get(name)
        if known is not None and _stays(known.rank, ranks, world) and name not in fresh:
            kept.append(name)
            exported[name] = known
        elif known is not None and not is_edited(target, name, known):
            continue
        elif name in fresh and fresh[name].sha256 is not None and not (target / name).is_symlink():
            if fresh[name].sha256 == digest(target, name):
                continue
            if known is None or fresh[name].sha256 != known.sha256:
                raise _refusal(target, name, was_exported=known is not None)
            kept.append(name)
        elif _meets(name, new, fresh):
            raise _refusal(target, name, was_exported=False)
        else:
            kept.append(name)
    return kept, exported


def _stays(rank: int | None, ranks: Collection[int | None], world: int) -> bool:
    return rank is not None and None not in ranks and rank not in ranks and rank < world


def _meets(name: str, new: Path, fresh: Mapping[str, Exported]) -> bool:
    """Whether a file or an empty folder cannot lie beside the new files."""
    plain = name.rstrip("/")
    if any(str(parent) in fresh for parent in Path(plain).parents):
        return True
    return plain in fresh or (not name.endswith("/") and (new / plain).is_dir())


def _refusal(target: Path, name: str, *, was_exported: bool) -> FileExistsError:
    what = "was edited since it was exported" if was_exported else "is not from an earlier gearcache.dynamo_export"
    return FileExistsError(
        f"dynamo_export: `{target / name.rstrip('/')}` {what}, and this export would write another file there; move it "
        "away, or give another export_path"
    )
