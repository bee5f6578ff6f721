"""Open regular files of the cache that no other user may have changed, and compare their bytes with a digest."""

from __future__ import annotations

import errno
import itertools
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from gearcache.cache.files.parent_folders import check_parents as check_parents
from gearcache.cache.files.parent_folders import is_private, is_trusted_by_name
from gearcache.errors import CorruptEntry, UnsafePath

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PIECE = 1 << 17  # stays in the processor's cache, and touches few fresh pages
_ELSEWHERE = "delete it, or set `cache_dir` to a folder of your own"


@contextmanager
def open_trusted(path: Path) -> Iterator[int]:
    """Open for reading, as a descriptor, a regular file that only this user (or root) can write.

    The checks are made on the opened file, so the file cannot be replaced in between. `UnsafePath` for symbolic links,
    other owners and files writable by group or others; `OSError` if it cannot be opened.
    """
    try:
        # O_NONBLOCK: a FIFO in its place would block the open.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(path, "it is a symbolic link", _ELSEWHERE) from error
        raise
    try:
        _check_trusted(path, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def read_trusted(path: Path, limit: int | None = None) -> bytes:
    """Read a trusted file whole; one larger than `limit` bytes is a `CorruptEntry`."""
    with open_trusted(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if limit is not None and size > limit:
            raise CorruptEntry(path, f"it has {size} bytes, more than the limit of {limit}")
        # Usually one read: joining two pieces costs as much as hashing them.
        data = os.read(descriptor, size + 1)
        while len(data) < size and (piece := os.read(descriptor, size + 1 - len(data))):
            data += piece
    return data


def read_verified(path: Path, digest: str) -> bytes:
    """Read a trusted file whose sha256 must be `digest`, else `CorruptEntry`. Raises `OSError` too."""
    data = read_trusted(path)
    actual_digest = sha256(data).hexdigest()
    if actual_digest != digest:
        raise CorruptEntry(path, f"its {len(data)} bytes have the sha256 {actual_digest}")
    return data


def check_digest(path: Path, digest: str) -> None:
    """Like `read_verified`, without holding the bytes in memory."""
    with open_trusted(path) as descriptor:
        check_descriptor(descriptor, path, digest)


def check_descriptor(descriptor: int, path: Path, digest: str) -> None:
    """Raise `CorruptEntry` where the sha256 of an open file differs; the message names `path`."""
    actual_digest = descriptor_digest(descriptor)
    if actual_digest != digest:
        raise CorruptEntry(path, f"it has the sha256 {actual_digest}")


def descriptor_digest(descriptor: int) -> str:
    """Sha256 of an open file from its current position on."""
    # Not hashlib.file_digest, which needs Python 3.11.
    state = sha256()
    buffer = memoryview(bytearray(_PIECE))
    while count := os.readv(descriptor, [buffer]):
        state.update(buffer[:count])
    return state.hexdigest()


def check_folders(root: Path, folder: Path, *, above: bool = True) -> bool:
    """Refuse folders, from the root of the cache down to this one, that other users could have replaced.

    Raises `UnsafePath` for symbolic links below the root, other owners and folders writable by group or others. Returns
    False where a folder is absent, which is safe. The root itself may be reached through a link, as the user named it;
    `check_parents` checks the folders above it.
    """
    if above:
        check_parents(root)
    chain = [root]
    for part in folder.relative_to(root).parts:
        chain.append(chain[-1] / part)
    for path in chain:
        try:
            state = os.stat(path) if path is root else os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if stat.S_ISLNK(state.st_mode):
            raise UnsafePath(path, "it is a symbolic link", _ELSEWHERE)
        if path is not root or not is_trusted_by_name(root):
            _check_owner(path, state)
    return True


@contextmanager
def opened_folder(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the descriptor of a folder of this user or root, and a name that opens it even if the path is replaced."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_owner(path, os.fstat(descriptor))
        yield descriptor, opened_name(descriptor, path)
    finally:
        os.close(descriptor)


_numbers = itertools.count()


def opened_name(descriptor: int, path: Path) -> str:
    """Return a name that opens exactly the file of a descriptor, as long as that is open.

    Every name is unique in the process: a dynamic loader reuses an object that it has loaded under the same name.
    Slashes and dots encode a serial number. Where the kernel has no such names, it is the path.
    """
    digits = "".join("./" if digit == "1" else "/" for digit in f"{next(_numbers):b}")
    name = f"/proc/self/fd/{digits}{descriptor}"
    return name if os.access(name, os.F_OK) else str(path)


def others_wrote(path: Path, state: os.stat_result) -> str:
    """Return why other users may have written a file anywhere on the host, or an empty text."""
    if state.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {state.st_uid}, who may have put anything into it"
    if state.st_mode & stat.S_IWOTH or (state.st_mode & stat.S_IWGRP and not is_private(str(path), state.st_gid)):
        return f"its mode {stat.S_IMODE(state.st_mode):04o} lets others write"
    return ""


def _check_trusted(path: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise UnsafePath(path, "it is not a regular file", _ELSEWHERE)
    _check_owner(path, state)


def _check_owner(path: Path, state: os.stat_result) -> None:
    # Root can change everything anyway, and images are often baked by root and served by another user.
    if state.st_uid not in (os.geteuid(), 0):
        raise UnsafePath(path, f"it belongs to user {state.st_uid}, not to {os.geteuid()}", _ELSEWHERE)
    if state.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(state.st_mode)
        command = f"chmod go-w {shlex.quote(str(path))}"
        remedy = f"run `{command}` if you trust what it holds, or set `cache_dir` to a folder of your own"
        raise UnsafePath(path, f"its mode {mode:04o} lets others write", remedy)


def open_regular(path: Path, flags: int, *, follow: bool = False) -> int:
    """Open a regular file as a descriptor, made with mode 0600 where `flags` say so; never waits.

    Raises `OSError`, also for anything but a regular file: a pipe would block the process, a link would lead elsewhere.
    `follow` is for files outside of a cache, which may be reached through links.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    return descriptor
