"""The folder of an export: written beside its place, moved there as a whole; the old one is removed afterwards.

A work folder `.NAME.gearcache-export-*` is created beside the place and locked by its process. It contains `new`, which
is the old export after the exchange, or `old1` if the file system does not support the exchange. An unlocked work
folder was left by a process that died: the next export removes it. Only files that exports wrote are deleted, unless
the user allows more.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gearcache.cache.files.atomic import sync_folder
from gearcache.cache.locks.lock import unlock
from gearcache.exporting.exchange import put_in_place
from gearcache.exporting.export_manifest import what_is_not_ours, write_manifest

logger = logging.getLogger("gearcache")
NEW = "new"
_OLD = "old"
#: While this file exists, a work folder may contain the old export.
_PUBLISHING = "publishing"
_MODE = 0o750


def check_place(target: Path, ranks: Collection[int | None] | None = None, *, overwrite: bool = False) -> None:
    """Raise `ValueError` or `NotADirectoryError` for a place that cannot be replaced; `FileExistsError` for a folder
    that holds anything but an export of some of these ranks, unless `overwrite`."""
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"dynamo_export: `{target}` is not a folder; remove it, or give another export_path")
    if Path.cwd().is_relative_to(target):
        raise ValueError(f"dynamo_export: export_path `{target}` holds the working folder; give a folder of its own")
    if target.is_mount():
        raise ValueError(f"dynamo_export: export_path `{target}` is a mount point; give a folder below it")
    if not overwrite and target.exists() and (problem := what_is_not_ours(target, ranks)):
        raise FileExistsError(
            f"dynamo_export: {problem}; move it away, give another export_path, or replace the whole folder with "
            "overwrite=True"
        )


@contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """Yield a locked folder beside the absolute path `target`, with an empty `new`; also removes abandoned ones."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent) as is_locked:
        if is_locked:
            _reclaim_leftovers(target)
        folder = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # such a file system has no kernel locks: nobody can remove abandoned folders there
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        (folder / NEW).mkdir(_MODE)
        yield folder
    finally:
        try:
            with _locked(target.parent):
                _reclaim(folder, target)
        except OSError as error:  # the export is already in its place, or has failed
            logger.warning("`%s` could not be removed: %s", folder, error)
        finally:
            unlock(descriptor)
            os.close(descriptor)


def publish(work: Path, target: Path, ranks: Collection[int | None], *, overwrite: bool = False) -> None:
    """Move `work/new`, which these ranks have filled, to `target`; errors are those of `check_place`."""
    new_folder = work / NEW
    with _locked(target.parent):
        check_place(target, ranks, overwrite=overwrite)
        write_manifest(new_folder, ranks)
        if target.exists():
            new_folder.chmod(stat.S_IMODE(target.stat().st_mode))
        _sync(new_folder)
        (work / _PUBLISHING).touch()
        put_in_place(new_folder, target, work / _OLD)
        sync_folder(target.parent)
        if overwrite:
            (work / _PUBLISHING).unlink()  # everything that is left in it may be deleted


def take_over(new: Path, other: Path) -> None:
    """Move all files of another rank's folder into `new`."""
    for child in sorted(other.iterdir()):
        if os.path.lexists(new / child.name):
            raise FileExistsError(f"dynamo_export: two ranks export `{child.name}`; give them different names")
        child.rename(new / child.name)


def _prefix(target: Path) -> str:
    return f".{target.name}.gearcache-export-"


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the kernel lock of a folder; False if the file system has none for folders."""
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


def _sync(folder: Path) -> None:
    """Flush all files of a folder to disk, so that a power cut leaves no empty ones."""
    for parent, _, files in os.walk(folder):
        for name in files:
            descriptor = os.open(Path(parent, name), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(parent))


def _reclaim_leftovers(target: Path) -> None:
    """Remove work folders that no running process has locked."""
    pattern = re.compile(re.escape(_prefix(target)) + r"[a-z0-9_]+")
    for path in target.parent.iterdir():
        if pattern.fullmatch(path.name) is None:
            continue
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _reclaim(path, target)
        except OSError:
            continue  # its process is running, or it is removed next time
        finally:
            os.close(descriptor)


def _reclaim(work_path: Path, target: Path) -> None:
    """Remove a work folder. An old export returns to its place if that is empty; a folder with other files stays."""
    reason = ""
    if (work_path / _PUBLISHING).exists():
        old_exports = sorted(work_path.glob(f"{_OLD}[0-9]*"), key=lambda path: int(path.name.removeprefix(_OLD)))
        if old_exports and not target.exists():
            old_exports.pop().rename(target)  # the process died between the two renames
        folders = [folder for folder in (work_path / NEW, *old_exports) if folder.exists()]
        reason = next((problem for folder in folders if (problem := what_is_not_ours(folder))), "")
    if reason:
        logger.warning("`%s` was left there: %s", work_path, reason)
    else:
        (work_path / _PUBLISHING).unlink(missing_ok=True)  # a part of what is left, after a kill, may be deleted too
        shutil.rmtree(work_path, ignore_errors=True)
