"""Write files whole or not at all; the only code that opens files for writing."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gearcache.errors import PublishError

TEMPORARY_PREFIX = ".writing-"
"""Start of the name of an unfinished file; one that stays behind belonged to a killed process."""

_UNFINISHED = re.compile(re.escape(TEMPORARY_PREFIX) + r"[^\W_]*-\d+-[0-9a-f]+")

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


def write_atomic(path: Path, data: bytes) -> None:
    """Put `data` at `path`, mode 0600: readers see the old file or the new one, also after a crash.

    The parent folder must exist. Safe against other threads and processes; the last writer wins.
    """
    _commit(path, (data,))


def write_pieces_atomic(path: Path, pieces: Iterable[bytes]) -> None:
    """Like `write_atomic`, in pieces; an error of the iterable leaves nothing behind."""
    _commit(path, pieces)


def write_new(path: Path, data: bytes) -> None:
    """Put `data` at `path`, mode 0600; `FileExistsError` where any file or link exists. Raises `OSError`.

    Not atomic: no reader expects the file yet.
    """
    try:
        _write_all(path, (data,))
    except FileExistsError:
        raise
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    sync_folder(path.parent)


def regular_target(path: Path) -> Path:
    """Return the file that a user's path leads to, links followed, so that it and not a link is replaced.

    `PublishError` where the path leads to anything but a regular file: a folder, a device, a pipe, a loop of links.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return target
    except OSError as error:
        raise PublishError(path, error.strerror or type(error).__name__) from error
    if not stat.S_ISREG(mode):
        raise PublishError(path, "it is no regular file")
    return target


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """A file for writing that appears at `path` when the `with` ends without an error; `PublishError`."""
    with _replacing(path) as temporary_path:
        descriptor = os.open(temporary_path, _NEW_FILE, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make a folder that may be there already, so that it stays after a power cut. Raises `OSError`."""
    try:
        path.mkdir(mode)
    except OSError:
        # Not only `EEXIST`: a disk that cannot be written may report that first.
        if not path.is_dir():
            raise
    else:
        sync_folder(path.parent)


def is_unfinished(path: Path) -> bool:
    """Return whether a file name is that of an unfinished file."""
    return _UNFINISHED.fullmatch(path.name) is not None


def move_aside(path: Path, target: Path) -> None:
    """Rename within the cache; both folders must exist. Raises `OSError`."""
    path.replace(target)


def _commit(path: Path, pieces: Iterable[bytes]) -> None:
    with _replacing(path) as temporary_path:
        _write_all(temporary_path, pieces)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write a file under, which then replaces `path`; after an error it is removed."""
    temporary_path = path.parent / _temporary_name()
    try:
        yield temporary_path
        temporary_path.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary_path.unlink()
        if isinstance(error, OSError):
            raise PublishError(path, error.strerror or type(error).__name__) from error
        raise


def _write_all(path: Path, pieces: Iterable[bytes]) -> None:
    descriptor = os.open(path, _NEW_FILE, 0o600)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, as far as the file system can and the folder may be read."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; the file itself is complete there.
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def _temporary_name() -> str:
    # The name contains the host because process ids repeat among the hosts that share a folder.
    host = "".join(letter for letter in os.uname().nodename if letter.isalnum())[:32]
    return f"{TEMPORARY_PREFIX}{host}-{os.getpid()}-{os.urandom(8).hex()}"
