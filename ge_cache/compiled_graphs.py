"""GE's own compiled graphs beside an entry: one folder per graph key, whole or not at all.

GE takes an existing key without comparing graphs, and says nothing of a file that was cut short. So a key is a digest
of the graph and all that its compile depends on, only one process at a time lets GE write under a key, and a folder
counts only when `sums.msgpack`, written last, names every file in it with its sha256. What a dead process left is
dropped before GE can see it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import filelock
import msgpack

SUMS = "sums.msgpack"


@contextlib.contextmanager
def graph_folder(root: Path, key: str, timeout: float) -> Iterator[Path | None]:
    """Yield the folder that GE may use for `key` while it compiles or loads; it exists.

    None when another process holds the key for longer than `timeout` seconds: compile without a folder then. When
    the body ends without an exception, what lies in the folder is sealed.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = root / key
    if is_sealed(folder):
        yield folder
        return
    lock = filelock.FileLock(root / f"{key}.lock", timeout=timeout, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        yield None
        return
    try:
        if not is_sealed(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            yield folder
            _seal(folder)
            return
    finally:
        lock.release()
    yield folder


def is_sealed(folder: Path) -> bool:
    """Whether a folder holds exactly the files that were sealed, byte for byte, and no one else may write there."""
    try:
        state = folder.lstat()
        if state.st_uid != os.geteuid() or state.st_mode & 0o022 or not folder.is_dir() or folder.is_symlink():
            return False
        sums = msgpack.unpackb((folder / SUMS).read_bytes(), raw=False)
        present = {path.name for path in folder.iterdir()} - {SUMS}
        return bool(sums) and present == set(sums) and all(_digest(folder / name) == sums[name] for name in sums)
    except (OSError, ValueError, AttributeError, TypeError, msgpack.UnpackException):
        return False


def _seal(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        return  # this GE wrote nothing: nothing to find later
    sums = {name: _digest(folder / name) for name in names}
    fresh = folder / f".{SUMS}"
    with fresh.open("wb") as file:
        file.write(msgpack.packb(sums))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / SUMS)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
