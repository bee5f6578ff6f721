"""The folder of an export: written beside its place, in `.NAME.gearcache-export-*`, and renamed into it as a whole.

A folder that is overwritten moves aside first. A process that is killed leaves its work folder, and between the two
renames in it the earlier folder, as `old`.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gearcache.cache.files.atomic import sync_folder

NEW = "new"
_MODE = 0o750


def check_place(target: Path, *, overwrite: bool = False) -> None:
    """Raise `ValueError` or `NotADirectoryError` for a place that cannot be replaced; `FileExistsError` for a folder
    with any content, unless `overwrite`."""
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"dynamo_export: `{target}` is not a folder; remove it, or give another export_path")
    if Path.cwd().is_relative_to(target):
        raise ValueError(f"dynamo_export: export_path `{target}` holds the working folder; give a folder of its own")
    if target.is_mount():
        raise ValueError(f"dynamo_export: export_path `{target}` is a mount point; give a folder below it")
    if not overwrite and target.exists() and (content := sorted(target.iterdir())):
        raise FileExistsError(
            f"dynamo_export: `{target}` holds `{content[0].name}`; move it away, give another export_path, or replace "
            "the whole folder with overwrite=True"
        )


@contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """Yield a folder beside the absolute path `target`, with an empty `new`; it is removed afterwards."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.gearcache-export-", dir=target.parent))
    try:
        (folder / NEW).mkdir(_MODE)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(work: Path, target: Path, *, overwrite: bool = False) -> None:
    """Move `work/new` to `target`; errors are those of `check_place`.

    Of two processes that publish at the same time one may raise `OSError`; the folder is then that of the other.
    """
    new_folder, old_folder = work / NEW, work / "old"
    if target.exists():
        new_folder.chmod(stat.S_IMODE(target.stat().st_mode))
    _sync(new_folder)
    check_place(target, overwrite=overwrite)
    try:
        if overwrite:
            with suppress(FileNotFoundError):
                target.rename(old_folder)
        new_folder.rename(target)  # takes the place of an empty folder, and fails for another one
    except BaseException:
        with suppress(OSError):
            old_folder.rename(target)
        raise
    sync_folder(target.parent)


def take_over(new: Path, other: Path) -> None:
    """Move all files of another rank's folder into `new`."""
    for child in sorted(other.iterdir()):
        if os.path.lexists(new / child.name):
            raise FileExistsError(f"dynamo_export: two ranks export `{child.name}`; give them different names")
        child.rename(new / child.name)


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
