"""Files of GE or CANN's `op_compiler` beside an entry: one folder per graph, complete or ignored.

GE accepts an existing key without comparing graphs, and does not report a truncated file. So a key is a digest of the
graph and everything that its compile depends on, and only one process at a time lets a compiler write there. A folder
counts only when `sums.msgpack`, written last, names every file in it with its sha256. Leftovers of a dead process are
removed before a compiler can see them.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import filelock
from msgspec import msgpack

logger = logging.getLogger("gearcache")
SUMS = "sums.msgpack"
#: Seconds to wait for another process that compiles the same.
LOCK_TIMEOUT = 1800.0


@contextlib.contextmanager
def graph_folder(root: Path, key: str, timeout: float = LOCK_TIMEOUT) -> Iterator[Path | None]:
    """Yield the folder that the compiler may use for `key` while it compiles or loads; it exists.

    None when another process holds the key for longer than `timeout` seconds, or the folder cannot be written: compile
    without a folder then. When the body ends without an exception, the content of the folder is sealed.
    """
    folder = root / key
    if is_sealed(folder):
        yield folder
        return
    with contextlib.ExitStack() as stack:
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = filelock.FileLock(root / f"{key}.lock", timeout=timeout, fallback_to_soft=False)
            stack.enter_context(lock)
            usable_folder: Path | None = folder
            was_sealed = is_sealed(folder)  # meanwhile, by the process that held the lock
            if not was_sealed:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(mode=0o700)
        except OSError as error:  # filelock's Timeout is one, too
            logger.info("%s: nothing is kept (%s)", folder, error or type(error).__name__)
            stack.close()
            usable_folder = None
        yield usable_folder
        if usable_folder is not None and not was_sealed:
            _seal(folder)


def is_sealed(folder: Path) -> bool:
    """Return whether a folder has exactly the sealed files, byte for byte, and no other user may write there."""
    try:
        state = folder.lstat()
        if not _is_ours(state) or not stat.S_ISDIR(state.st_mode):
            return False
        present = set(_files(folder)) - {SUMS}  # all regular files: opening a pipe would block
        sums = msgpack.decode((folder / SUMS).read_bytes())
        return bool(sums) and present == set(sums) and all(_digest(folder / name) == sums[name] for name in sums)
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _files(folder: Path) -> list[str]:
    """Return the names of all files below a folder; `ValueError` for an object that is not a file or folder of ours."""
    names = []
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        if not _is_ours(state) or not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):
            raise ValueError(f"{path} is not a regular file of this user alone")
        if stat.S_ISREG(state.st_mode):
            names.append(path.relative_to(folder).as_posix())
    return names


def _is_ours(state: os.stat_result) -> bool:
    return state.st_uid in (os.geteuid(), 0) and not state.st_mode & 0o022


def _seal(folder: Path) -> None:
    try:
        for path in folder.rglob("*"):
            if not path.is_symlink():  # a compiler follows the umask
                path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o022)
        sums = {name: _digest(folder / name) for name in _files(folder)}
        if not sums:
            return  # nothing was written, so there is nothing to seal
        fresh = folder / f".{SUMS}"
        with fresh.open("wb") as file:
            file.write(msgpack.encode(sums))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / SUMS)
    except (OSError, ValueError) as error:
        logger.warning("%s: not kept (%s)", folder, error)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
