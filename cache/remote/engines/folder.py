"""The tier `folder:/path`: a folder that hosts share (NFS, Lustre, a mounted bucket).

Known problems of shared file systems are avoided: no locks are used, no folder is ever removed, and no code is loaded
from it. Files are written under a name of their own and renamed, and an absent file is looked for again. The root is
never made, as it is absent where a share is not mounted. A link below it is never followed to foreign files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gearcache.cache.remote.engines.protocol import (
    Creates,
    Deadline,
    Denied,
    RemoteError,
    TooLarge,
    check_name,
    is_name,
)
from gearcache.cache.remote.engines.retrying import tried
from gearcache.cache.remote.requests.deadline import within

_Result = TypeVar("_Result")
#: The file was just replaced, or the server has forgotten the handle: opening it again helps.
_AGAIN = (errno.ESTALE, errno.EBUSY, errno.EAGAIN, errno.EINTR)
#: Errors of a file system without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EXDEV, errno.EINVAL)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_ABSENT = (FileNotFoundError, NotADirectoryError)
#: Errors for a link that the system was asked not to follow.
_NOT_FOLLOWED = (errno.ELOOP, errno.ENOTDIR)
#: A folder to look things up in costs no more than a part of a path.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
#: Seconds before the second and the third try.
_PAUSES = (0.1, 0.4)
_CHUNK = 1 << 20
_TEMPORARY = ".tmp-"


class _Again(OSError):
    """The operation must be done again."""


class FolderRemote:
    """A shared folder. A hanging file system blocks only its thread: the caller continues at the deadline."""

    #: Only with hard links, which a mounted bucket has not.
    creates: Creates = "perhaps"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(os.path.expanduser(path)))
        self.label = f"folder:{self._root}"

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        return self._do(deadline, name, lambda folder, leaf: self._read(folder, leaf, limit), None)

    def size(self, name: str, deadline: Deadline) -> int | None:
        return self._do(deadline, name, self._size, None)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        def write(folder: int, leaf: str) -> bool:
            return self._write(folder, leaf, data, create)

        return self._do(deadline, name, write, False, make=True)

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        def collect(folder: int, leaf: str) -> list[str]:
            names: list[str] = []
            self._list(folder, leaf, prefix, names, limit, deadline)
            return sorted(names)[:limit]

        prefix = prefix.removesuffix("/")
        return self._do(deadline, prefix, collect, [])

    def delete(self, name: str, deadline: Deadline) -> None:
        def remove(folder: int, leaf: str) -> None:
            os.unlink(leaf, dir_fd=folder)

        self._do(deadline, name, remove, None)

    def sweep(self, name: str, seconds: float, deadline: Deadline, *, dry_run: bool) -> int:
        """Remove the files below a folder that writers left unfinished at least so long ago; returns their number."""

        def sweep(folder: int, leaf: str) -> int:
            before, count = time.time() - seconds, 0
            for _, _, file_names, inner in os.fwalk(leaf, dir_fd=folder):
                deadline.check(self.label)
                for file_name in file_names:
                    if file_name.startswith(_TEMPORARY):
                        with contextlib.suppress(*_ABSENT):
                            if _look(inner, file_name).st_mtime < before:
                                if not dry_run:
                                    os.unlink(file_name, dir_fd=inner)
                                count += 1
            return count

        return self._do(deadline, name, sweep, 0)

    def _read(self, folder: int, leaf: str, limit: int) -> bytes | None:
        # Opening it asks the server; a look at the folder may be answered from the client's cache.
        descriptor = os.open(leaf, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            return self._whole(descriptor, leaf, limit)
        finally:
            os.close(descriptor)

    def _whole(self, descriptor: int, leaf: str, limit: int) -> bytes | None:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return None
        pieces, size = [], 0
        while piece := os.read(descriptor, _CHUNK):  # a read may be short
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise TooLarge(self.label, f"`{leaf}` has more than {limit} bytes")
        # Files appear whole, so another size means that the mount is behind, or has cut the file off.
        if size != os.fstat(descriptor).st_size:
            raise _Again(errno.EIO, f"`{leaf}` is cut off after {size} bytes")
        return b"".join(pieces)

    def _size(self, folder: int, leaf: str) -> int | None:
        state = _look(folder, leaf)
        if stat.S_ISLNK(state.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return state.st_size if stat.S_ISREG(state.st_mode) else None

    def _write(self, folder: int, leaf: str, data: bytes, create: bool) -> bool:
        temporary = f"{_TEMPORARY}{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            self._fill(folder, temporary, data)
            if create:
                return self._create(folder, temporary, leaf)
            os.replace(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        except FileNotFoundError as error:
            # A host with an outdated view of the folder does not see the file that it has just made.
            raise _Again(errno.EIO, "what was written is not to be found") from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
        return True

    def _create(self, folder: int, temporary: str, leaf: str) -> bool:
        try:
            os.link(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise Denied(self.label, "its file system makes no hard links") from error
            # The answer of a server may be lost; the repeated request then fails because the file exists.
            if _links(folder, temporary) == 2:
                return True
            if error.errno == errno.EEXIST:
                return False
            raise
        return True

    def _fill(self, folder: int, temporary: str, data: bytes) -> None:
        descriptor = os.open(temporary, _NEW, 0o644, dir_fd=folder)
        try:
            rest = memoryview(data)
            while rest:
                if not (written := os.write(descriptor, rest)):
                    raise OSError(errno.EIO, "nothing could be written")
                rest = rest[written:]
            os.fsync(descriptor)
            if os.fstat(descriptor).st_size != len(data):
                raise OSError(errno.EIO, "not all was written")
        finally:
            os.close(descriptor)  # a full share may report that only now

    def _list(self, folder: int, leaf: str, name: str, names: list[str], limit: int, deadline: Deadline) -> None:
        deadline.check(self.label)
        folder_names: list[str] = []
        descriptor = os.open(leaf, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        try:
            with os.scandir(descriptor) as items:
                for item in items:
                    if not is_name(inner := f"{name}/{item.name}"):
                        continue
                    if item.is_dir(follow_symlinks=False):
                        folder_names.append(item.name)
                    elif item.is_file(follow_symlinks=False):
                        names.append(inner)
            for folder_name in folder_names:
                if len(names) < limit:
                    with contextlib.suppress(*_ABSENT):
                        self._list(descriptor, folder_name, f"{name}/{folder_name}", names, limit, deadline)
        finally:
            os.close(descriptor)

    def _open(self, names: list[str], make: bool) -> int:
        """Open a folder below the root, part by part: no link leads out of the root. The root is never made here."""
        try:
            folder = os.open(self._root, _FOLDER)
        except _ABSENT as error:
            raise RemoteError(self.label, f"there is no folder `{self._root}`: make it, or mount the share") from error
        for name in names:
            try:
                inner = self._step(folder, name, make)
            finally:
                os.close(folder)
            folder = inner
        return folder

    def _step(self, folder: int, name: str, make: bool) -> int:
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
        with contextlib.suppress(FileExistsError):  # made by another process at the same time
            os.mkdir(name, dir_fd=folder)
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError as error:
            raise _Again(errno.EIO, "what was made is not to be found") from error

    def _refuse_links(self, names: list[str]) -> None:
        path = self._root
        for name in names:
            path /= name
            if path.is_symlink():
                raise RemoteError(
                    self.label, f"`{path}` is a symbolic link, and links below the folder are not followed"
                )

    def _do(
        self,
        deadline: Deadline,
        name: str,
        work: Callable[[int, str], _Result],
        absent: _Result,
        *,
        make: bool = False,
    ) -> _Result:
        """Call `work` with the open folder and the file name of an object, in up to three tries, and return its result.

        Returns `absent` where the object is missing, unless its folders are to be made.
        """
        check_name(self.label, name)
        *folder_names, leaf = names = name.split("/")

        def attempt() -> _Result:
            try:
                folder = self._open(folder_names, make)
                try:
                    return work(folder, leaf)
                finally:
                    os.close(folder)
            except OSError as error:
                if error.errno in _NOT_FOLLOWED:
                    self._refuse_links(names)
                if make or not isinstance(error, _ABSENT):
                    raise
                return absent

        def run() -> _Result:
            try:
                return tried(attempt, _PAUSES, is_passing=_is_passing, deadline=deadline)
            except OSError as error:
                kind = Denied if error.errno in _DENIED else RemoteError
                raise kind(self.label, error.strerror or type(error).__name__) from error

        return within(deadline, self.label, run)


def _is_passing(error: Exception) -> bool:
    return isinstance(error, _Again) or (isinstance(error, OSError) and error.errno in _AGAIN)


def _look(folder: int, leaf: str) -> os.stat_result:
    return os.stat(leaf, dir_fd=folder, follow_symlinks=False)


def _links(folder: int, leaf: str) -> int:
    """Return how many names a file has; 0 where that is unknown."""
    try:
        return _look(folder, leaf).st_nlink
    except OSError:
        return 0
