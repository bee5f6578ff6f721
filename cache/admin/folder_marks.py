"""The marks that make git and backups skip a cache, and the names that only gearcache uses in a folder.

The root may be any folder, a project or a home: it gets the marks only where it holds nothing but a cache. Otherwise
the folder of the format version gets them, which gearcache made.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from gearcache.cache.files.atomic import is_unfinished, write_atomic
from gearcache.cache.files.trust import read_trusted
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.errors import CacheError

#: In write order: the last mark implies that the others exist.
_MARKS = {
    ".gitignore": b"*\n",
    "CACHEDIR.TAG": (
        b"Signature: 8a477f597d28d172789f06886806bc55\n"
        b"# This file marks a cache folder created by gearcache; see https://bford.info/cachedir/\n"
    ),
}
LAST_MARK = "CACHEDIR.TAG"
#: What any format version keeps in its folder.
_PARTS = frozenset(("entries", "blobs", "locks", "index", "quarantine", "misses", "tiers", "counted_from", *_MARKS))
_BUCKET = re.compile(r"v(\d{1,9})", re.ASCII)
_LONGEST_MARK = 4096


def version_of(name: str) -> int | None:
    """The format version that a folder is named after; None for any other name."""
    match = _BUCKET.fullmatch(name)
    return int(match[1]) if match else None


def foreign_name(folder: Path) -> str | None:
    """Return a name in a folder that no format version uses; None where all names are ours. Raises `OSError`."""
    return next((path.name for path in folder.iterdir() if path.name not in _PARTS and not is_unfinished(path)), None)


def is_bucket(folder: Path) -> bool:
    """Return whether a folder named like a format version is one, and not a user's `v1`. Raises `OSError`."""
    if folder.is_symlink() or version_of(folder.name) is None:
        return False
    return (folder / "entries").is_dir() and foreign_name(folder) is None


def other_formats(root: Path) -> list[Path]:
    """Return the folders of other format versions, the oldest first, without a user's own `v1`. Never raises."""
    folders = []
    with suppress(OSError):
        for path in root.iterdir():
            with suppress(OSError):
                if version_of(path.name) != FORMAT_VERSION and is_bucket(path):
                    folders.append(path)
    return sorted(folders, key=lambda path: version_of(path.name) or 0)


def is_marked(root: Path, bucket: Path) -> bool:
    """Whether the marks are written. Raises `OSError`."""
    return (bucket / LAST_MARK).exists() or _is_ours(root / LAST_MARK)


def mark(root: Path, bucket: Path) -> None:
    """Write the marks; the bucket must be there. Raises `OSError` or `PublishError`."""
    folder = root if all(_is_ours(path) for path in root.iterdir()) else bucket
    for name, content in _MARKS.items():
        if not (folder / name).exists():
            write_atomic(folder / name, content)


def _is_ours(path: Path) -> bool:
    if path.name not in _MARKS:
        return is_unfinished(path) or is_bucket(path)
    try:
        return read_trusted(path, _LONGEST_MARK) == _MARKS[path.name]
    except (OSError, CacheError):
        return False
