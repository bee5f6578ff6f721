"""The folder of an export: made beside its place, put there whole, and the old one taken apart afterwards.

A work folder `.NAME.gearcache-export-*` lies beside the place and is locked by its process. It holds `new`, which is
the old export once it was exchanged, or `old1` where the file system knows no exchange. One that nobody locks was left
by a process that died: the next export cleans it up. Files that no export wrote are never deleted.
"""

from __future__ import annotations

import fcntl
import filecmp
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from gearcache.cache.atomic import sync_folder
from gearcache.cache.lock import unlock
from gearcache.exporting.exchange import put_in_place
from gearcache.exporting.export_manifest import (
    MANIFEST,
    describe,
    is_edited,
    kept_files,
    read_manifest,
    walk,
    write_manifest,
)

logger = logging.getLogger("gearcache")
NEW = "new"
_OLD = "old"
#: From here on a work folder may hold files of the user.
_PUBLISHING = "publishing"
_MODE = 0o750


def check_place(target: Path) -> None:
    """Raise `ValueError` for a folder that cannot be replaced, and `NotADirectoryError` for a file."""
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"dynamo_export: `{target}` is no folder; remove it, or give another export_path")
    if Path.cwd().is_relative_to(target):
        raise ValueError(f"dynamo_export: export_path `{target}` holds the working folder; give a folder of its own")
    if target.is_mount():
        raise ValueError(f"dynamo_export: export_path `{target}` is a mount point; give a folder below it")


@contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """A locked folder beside the absolute path `target`, with an empty `new` in it; also cleans up after the dead."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent) as is_locked:
        if is_locked:
            _reclaim_leftovers(target)
        work = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        held = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # such a file system has no kernel locks: then nobody cleans up after us
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        (work / NEW).mkdir(_MODE)
        yield work
    finally:
        try:
            with _locked(target.parent):
                _reclaim(work, target)
        except OSError as error:  # the export is in its place, or has failed already
            logger.warning("`%s` could not be removed: %s", work, error)
        finally:
            unlock(held)
            os.close(held)


def publish(work: Path, target: Path, owners: Mapping[str, int | None], world: int) -> None:
    """Put `work/new` in the place of `target`; `owners` has the rank (or None) of each file in it.

    `FileExistsError` names a file of the user that would have to give way; then nothing was changed.
    """
    new = work / NEW
    with _locked(target.parent):
        kept: list[str] = []
        exported = describe(new, owners)
        if target.exists():
            kept, exported = kept_files(target, new, exported, set(owners.values()), world)
            new.chmod(stat.S_IMODE(target.stat().st_mode))
        write_manifest(new, exported)
        (work / _PUBLISHING).touch()
        for name in kept:
            _carry(target, new, name)
        _sync(new)
        put_in_place(new, target, work / _OLD)
        sync_folder(target.parent)


def take_over(new: Path, other: Path) -> list[str]:
    """Move all files of another rank's folder into `new`, and return their names."""
    names = list(walk(other))
    for child in sorted(other.iterdir()):
        if os.path.lexists(new / child.name):
            raise FileExistsError(f"dynamo_export: two ranks export `{child.name}`; give them different names")
        child.rename(new / child.name)
    return names


def _prefix(target: Path) -> str:
    return f".{target.name}.gearcache-export-"


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the kernel lock of a folder; False where the file system has none for folders."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True
    finally:
        unlock(descriptor)
        os.close(descriptor)


def _carry(source: Path, new: Path, name: str) -> None:
    """Let a file (or an empty folder) be in the new folder as well, under its name."""
    parts = Path(name).parts if name.endswith("/") else Path(name).parent.parts
    for depth in range(1, len(parts) + 1):
        folder = Path(*parts[:depth])
        if not (new / folder).exists():
            (new / folder).mkdir()
            (new / folder).chmod(stat.S_IMODE((source / folder).stat().st_mode) | stat.S_IRWXU)
    if name.endswith("/"):
        return
    with suppress(FileNotFoundError):
        (new / name).unlink()  # a template that the user has filled in
    try:
        os.link(source / name, new / name, follow_symlinks=False)
    except OSError:
        shutil.copy2(source / name, new / name, follow_symlinks=False)


def _sync(folder: Path) -> None:
    """Put all files of a folder on disk, so that a power cut leaves no empty ones."""
    for parent, _, files in os.walk(folder):
        for name in files:
            path = Path(parent, name)
            if path.is_symlink() or not path.is_file():
                continue
            with suppress(PermissionError):  # a file of the user that he may not read
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        sync_folder(Path(parent))


# -- what is left beside an export -----------------------------------------------------------------------------


def _reclaim_leftovers(target: Path) -> None:
    """Clean up work folders that no living process holds."""
    pattern = re.compile(re.escape(_prefix(target)) + r"[a-z0-9_]+")
    for path in target.parent.iterdir():
        if pattern.fullmatch(path.name) is None:
            continue
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _reclaim(path, target)
        except OSError:
            continue  # its process lives, or it is cleaned up next time
        finally:
            os.close(descriptor)


def _reclaim(work: Path, target: Path) -> None:
    """Remove a work folder; of files that no export wrote, those go back that are not in `target`."""
    if not (work / _PUBLISHING).exists():
        shutil.rmtree(work, ignore_errors=True)
        return
    old = sorted(work.glob(f"{_OLD}[0-9]*"), key=lambda path: int(path.name.removeprefix(_OLD)))
    if old and not target.exists():
        old.pop().rename(target)  # died between the two renames
    left = [name for folder in (work / NEW, *old) if folder.exists() for name in _take_apart(folder, target)]
    if left:
        logger.warning(
            "`%s` holds `%s`, which no dynamo_export wrote and which has another content in `%s`: it is left there",
            work,
            left[0],
            target,
        )
        return
    (work / _PUBLISHING).unlink()
    work.rmdir()


def _take_apart(folder: Path, target: Path) -> list[str]:
    """Remove from a folder what an export wrote or `target` has too, and move the rest there; return what stays."""
    exported = read_manifest(folder)
    left = []
    for name in walk(folder):
        path, other = folder / name, target / name
        if name.endswith("/"):
            continue
        if _same(path, other) or (name in exported and not is_edited(folder, name, exported[name])):
            path.unlink()
        elif os.path.lexists(other):
            left.append(name)
        else:
            try:
                other.parent.mkdir(parents=True, exist_ok=True)
                path.rename(other)
            except (FileExistsError, NotADirectoryError):  # a file lies where its folder would
                left.append(name)
    if not left:
        (folder / MANIFEST).unlink(missing_ok=True)
        for parent, _, _ in os.walk(folder, topdown=False):
            Path(parent).rmdir()  # fails for a file that came meanwhile: then the next export takes it
    return left


def _same(first: Path, second: Path) -> bool:
    if not os.path.lexists(second):
        return False
    if os.path.samestat(first.lstat(), second.lstat()):
        return True
    if first.is_symlink() or second.is_symlink():
        return first.is_symlink() and second.is_symlink() and first.readlink() == second.readlink()
    return first.is_file() and second.is_file() and filecmp.cmp(first, second, shallow=False)
