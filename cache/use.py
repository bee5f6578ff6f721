"""Who uses an entry: a shared kernel lock on its `use` file, held as long as the process has it loaded."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


class Use:
    """A registered user of an entry; `close`, the end of the object or of the process ends it.

    A forked child shares it, and ends it when both have ended.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def count(self) -> None:
        """Count a load: the size of the file is how many there were, its time the last one."""
        with suppress(OSError):  # opened for reading only, or a full disk
            os.write(self._descriptor, b"+")

    def close(self) -> None:
        """End the use; may be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def register_use(path: Path, *, create: bool = False) -> Use | None:
    """Hold the use file of an entry; None where there is none, where it is being removed, or cannot be locked.

    `create` makes the file, in a folder that exists. Never waits and never raises: who cannot register may load all
    the same.
    """
    descriptor = _open(path, create)
    if descriptor is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # Whoever removes the entry unlinks the file under the lock: then this one is not the entry's any more.
        registered = os.fstat(descriptor).st_nlink > 0
    except OSError:
        registered = False
    if not registered:
        os.close(descriptor)
        return None
    return Use(descriptor)


@contextmanager
def exclusive_use(path: Path) -> Iterator[bool]:
    """Whether nobody uses the entry, which stays so inside the `with`. Raises `OSError`, but not for an absent file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            alone = False
        yield alone
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class User:
    """A live process that has an entry loaded; `command` is empty where it cannot be read."""

    pid: int
    command: str


def users_of(path: Path) -> list[User]:
    """The processes that hold the lock of a use file, as Linux tells in `/proc/locks`; elsewhere none."""
    try:
        found = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    # `1: FLOCK  ADVISORY  READ 1234 fe:00:5678 0 EOF`; the device is written differently by some file systems.
    holders = set()
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(found.st_ino):
            holders.add(int(fields[4]))
    return [User(pid, _command(pid)) for pid in sorted(holders) if pid > 0]


def _command(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return " ".join(part.decode(errors="replace") for part in text.split(b"\0") if part)


def _open(path: Path, create: bool) -> int | None:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    writing = flags | os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
    try:
        return os.open(path, writing, 0o600)
    except FileNotFoundError:
        return None
    except OSError:
        # A shared cache that this user may only read; a shared lock needs no more.
        try:
            return os.open(path, flags | os.O_RDONLY)
        except OSError:
            return None
