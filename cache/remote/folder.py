"""`folder:/path`: a folder that hosts share (NFS, Lustre, a mounted bucket).

What broke others on such file systems is avoided: no locks, no folder is ever removed, nothing is loaded from it, files
are written under a name of their own and renamed, and what is absent may be there a moment later.
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

from gearcache.cache.remote.protocol import Creates, Deadline, RemoteError, check_name, is_name
from gearcache.cache.remote.within import within

_Result = TypeVar("_Result")
#: A file that was there is about to be exchanged, or the server has forgotten the handle: opening it anew helps.
_AGAIN = (errno.ESTALE, errno.EBUSY, errno.EAGAIN, errno.EINTR)
#: What a file system without hard links says.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EXDEV, errno.EINVAL)
_ABSENT = (FileNotFoundError, NotADirectoryError)
#: Before the second and the third try.
_PAUSES = (0.05, 0.2)
_CHUNK = 1 << 20
_CLAIM_SECONDS = 600.0
_TEMPORARY = ".tmp-"


class _Again(OSError):
    """What was done must be done anew."""


class FolderRemote:
    """A shared folder. A file system that hangs is left to its thread: the caller goes on at the deadline."""

    creates: Creates = "yes"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(os.path.expanduser(path)))
        self.label = f"folder:{self._root}"

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        return self._do(deadline, name, lambda path: self._read(path, limit))

    def size(self, name: str, deadline: Deadline) -> int | None:
        return self._do(deadline, name, self._size)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        return self._do(deadline, name, lambda path: self._write(path, data, create))

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        return self._do(deadline, prefix.removesuffix("/"), lambda path: self._list(path, limit, deadline))

    def delete(self, name: str, deadline: Deadline) -> None:
        def remove(path: Path) -> None:
            for gone in (path, _claim_of(path)):
                with contextlib.suppress(*_ABSENT):
                    gone.unlink()

        self._do(deadline, name, remove)

    def clock(self, name: str, deadline: Deadline) -> float | None:
        """Return when a file was written, by the clock of who keeps the share, in seconds since 1970."""

        def read(path: Path) -> float | None:
            try:
                return path.lstat().st_mtime
            except _ABSENT:
                return None

        return self._do(deadline, name, read)

    def _read(self, path: Path, limit: int) -> bytes | None:
        try:
            # Opening it asks the server, where a look at the folder may be answered from memory.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except _ABSENT:
            return None
        try:
            return self._whole(descriptor, path, limit)
        finally:
            os.close(descriptor)

    def _whole(self, descriptor: int, path: Path, limit: int) -> bytes | None:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        pieces, size = [], 0
        while piece := os.read(descriptor, _CHUNK):  # a read may be short
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise RemoteError(self.label, f"`{path.name}` has more than {limit} bytes")
        # Files appear whole, so another size is that of a mount that has not caught up, or that cut it off.
        if size != os.fstat(descriptor).st_size:
            raise _Again(errno.EIO, f"`{path.name}` is cut off after {size} bytes")
        return b"".join(pieces)

    def _size(self, path: Path) -> int | None:
        try:
            found = path.lstat()
        except _ABSENT:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def _write(self, path: Path, data: bytes, create: bool) -> bool:
        hidden = path.with_name(f"{_TEMPORARY}{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(8)}")
        try:
            self._fill(hidden, data)
            if create:
                return self._create(hidden, path)
            os.replace(hidden, path)
        except FileNotFoundError as error:
            # A host whose memory of the folder is old does not see what it has made a moment ago.
            raise _Again(errno.EIO, "what was written is not to be found") from error
        finally:
            with contextlib.suppress(OSError):
                hidden.unlink()
        return True

    def _create(self, hidden: Path, path: Path) -> bool:
        try:
            os.link(hidden, path)
        except OSError as error:
            # The answer of a server may be lost, and that to the same question says that the file is there.
            if error.errno not in _NO_LINKS:
                if _links(hidden) == 2:
                    return True
                if error.errno == errno.EEXIST:
                    return False
                raise
        else:
            return True
        return self._claim(hidden, path)

    def _claim(self, hidden: Path, path: Path) -> bool:
        """Create an object without links: whoever makes the file beside it may. It is there as long as the object."""
        if self._size(path) is not None:
            return False
        claim = _claim_of(path)
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))
        except FileExistsError:
            # Of a host that ended in between; another try may have it. Clocks differ.
            if time.time() - claim.lstat().st_mtime > _CLAIM_SECONDS:
                claim.unlink(missing_ok=True)
            return False
        try:
            os.replace(hidden, path)
        except OSError:
            if not os.path.lexists(hidden):  # it was done, and the answer lost
                return True
            with contextlib.suppress(OSError):
                claim.unlink()
            raise
        return True

    def _fill(self, path: Path, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, 0o644)
        except FileNotFoundError:
            self._make_folders(path.parent)
            descriptor = os.open(path, flags, 0o644)
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
            os.close(descriptor)  # a full share may say so only now

    def _make_folders(self, folder: Path) -> None:
        """Make a folder and those above it up to the root; what others make at once is no error, nor asked for."""
        if not self._root.parent.is_dir():  # nothing is made where a share is not mounted
            raise RemoteError(self.label, f"there is no folder {self._root.parent}")
        for made in (*reversed(folder.parents), folder):
            if made.is_relative_to(self._root):
                with contextlib.suppress(FileExistsError):
                    made.mkdir()

    def _list(self, top: Path, limit: int, deadline: Deadline) -> list[str]:
        found: list[str] = []
        waiting = [top]
        while waiting and len(found) < limit:
            deadline.check(self.label)
            folder = waiting.pop()
            try:
                with os.scandir(folder) as items:
                    for item in items:
                        name = Path(item.path).relative_to(self._root).as_posix()
                        if not is_name(name):
                            continue
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(Path(item.path))
                        elif item.is_file(follow_symlinks=False):
                            found.append(name)
            except _ABSENT:
                continue
        return sorted(found)[:limit]

    def _do(self, deadline: Deadline, name: str, work: Callable[[Path], _Result]) -> _Result:
        """Return what `work` makes of the path of an object, in up to three tries."""
        check_name(self.label, name)
        path = self._root.joinpath(*name.split("/"))

        def run() -> _Result:
            for pause in _PAUSES:
                try:
                    return work(path)
                except OSError as error:
                    if not isinstance(error, _Again) and error.errno not in _AGAIN:
                        raise
                time.sleep(min(pause, deadline.check(self.label)))
            return work(path)

        try:
            return within(deadline, self.label, run)
        except OSError as error:
            raise RemoteError(self.label, error.strerror or type(error).__name__) from error


def _claim_of(path: Path) -> Path:
    return path.with_name(f"{_TEMPORARY}claim-{path.name}")


def _links(path: Path) -> int:
    """Return how many names a file has; 0 where it cannot be looked at."""
    try:
        return path.lstat().st_nlink
    except OSError:
        return 0
