"""Temporary folders of this process; folders left behind by killed processes of this user are collected."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "gearcache-scratch-"
#: Locked as long as the owner of the folder lives; a folder without it is not ours.
LOCK = ".owner"
#: A folder is made a moment before its lock is held.
_YOUNG_SECONDS = 60.0
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Scratch:
    """A folder of this process, mode 0700; raises `OSError` where it cannot be made."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = -1
        try:
            self._lock = os.open(self.path / LOCK, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Delete the folder with its content; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        descriptor, self._lock = self._lock, -1
        if descriptor >= 0:
            os.close(descriptor)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder that is deleted after the `with`; raises `OSError` where it cannot be made."""
    scratch = Scratch()
    try:
        yield scratch.path
    finally:
        scratch.remove()


def collect_scratch() -> list[Path]:
    """Delete the scratch folders of this user whose owners have died, and return them. Never raises."""
    removed = []
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for item in entries:
            if item.name.startswith(PREFIX) and _is_abandoned(item):
                shutil.rmtree(item.path, ignore_errors=True)
                removed.append(Path(item.path))
    return removed


def _is_abandoned(item: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        folder = item.stat(follow_symlinks=False)
        if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid():
            return False
        descriptor = os.open(f"{item.path}/{LOCK}", _OPEN)
        try:
            lock = os.fstat(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock.st_uid == os.geteuid() and time.time() - lock.st_mtime > _YOUNG_SECONDS
        finally:
            os.close(descriptor)
    return False
