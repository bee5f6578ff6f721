"""`folder:/path`: a folder that hosts share (NFS, Lustre, a mounted bucket).

What broke others on such file systems is avoided: no locks, no links, no folder is ever removed, nothing is loaded
from it, files are written under a name of their own and renamed, and what is absent may be there a moment later.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gearcache.cache.remote.protocol import Creates, Deadline, RemoteError
from gearcache.cache.remote.within import within

_Result = TypeVar("_Result")
#: A file that was there is about to be exchanged, or the server has forgotten the handle: opening it anew helps.
_AGAIN = (errno.ESTALE, errno.EBUSY, errno.EAGAIN, errno.EINTR)
_TRIES = 3
_CHUNK = 1 << 20
_TEMPORARY = ".tmp-"


class FolderRemote:
    """A shared folder. A file system that hangs is left to its thread: the caller goes on at the deadline."""

    creates: Creates = "yes"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(os.path.expanduser(path)))
        self.label = f"folder:{self._root}"

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        return self._within(deadline, lambda: self._read(self._path(name), limit))

    def size(self, name: str, deadline: Deadline) -> int | None:
        def look() -> int | None:
            try:
                found = self._path(name).lstat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return found.st_size if stat.S_ISREG(found.st_mode) else None

        return self._within(deadline, look)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        return self._within(deadline, lambda: self._write(self._path(name), data, create))

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        return self._within(deadline, lambda: self._list(prefix, limit))

    def delete(self, name: str, deadline: Deadline) -> None:
        def remove() -> None:
            self._path(name).unlink(missing_ok=True)

        self._within(deadline, remove)

    def clock(self, written: str, deadline: Deadline) -> float | None:
        """Return when a file was written, by the clock of who keeps the share, in seconds since 1970."""

        def read() -> float | None:
            try:
                return self._path(written).lstat().st_mtime
            except (FileNotFoundError, NotADirectoryError):
                return None

        return self._within(deadline, read)

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if not all(parts) or any(part in (".", "..") or "\0" in part for part in parts):
            raise RemoteError(self.label, f"`{name}` is no name of an object")
        return self._root.joinpath(*parts)

    def _read(self, path: Path, limit: int) -> bytes | None:
        for attempt in range(_TRIES):
            try:
                # Opening it asks the server, where a look at the folder may be answered from memory.
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    return self._whole(descriptor, path, limit)
                finally:
                    os.close(descriptor)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                if error.errno not in _AGAIN or attempt + 1 == _TRIES:
                    raise
        return None

    def _whole(self, descriptor: int, path: Path, limit: int) -> bytes:
        pieces, size = [], 0
        while piece := os.read(descriptor, _CHUNK):  # a read may be short
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise RemoteError(self.label, f"`{path.name}` has more than {limit} bytes")
        return b"".join(pieces)

    def _write(self, path: Path, data: bytes, create: bool) -> bool:
        path.parent.mkdir(parents=True, exist_ok=True)
        if create:
            return self._create(path, data)
        hidden = path.with_name(f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}")
        try:
            self._fill(hidden, data)
            os.replace(hidden, path)
        finally:
            hidden.unlink(missing_ok=True)
        return True

    def _create(self, path: Path, data: bytes) -> bool:
        try:
            self._fill(path, data)
        except FileExistsError:
            return False
        return True

    def _fill(self, path: Path, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _list(self, prefix: str, limit: int) -> list[str]:
        top = self._path(prefix.rstrip("/"))
        found: list[str] = []
        waiting = [top]
        while waiting and len(found) < limit:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as items:
                    for item in items:
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(Path(item.path))
                        elif not item.name.startswith(_TEMPORARY):
                            found.append(Path(item.path).relative_to(self._root).as_posix())
            except (FileNotFoundError, NotADirectoryError):
                continue
        return sorted(found)[:limit]

    def _within(self, deadline: Deadline, work: Callable[[], _Result]) -> _Result:
        try:
            return within(deadline, self.label, work)
        except OSError as error:
            raise RemoteError(self.label, error.strerror or type(error).__name__) from error
