"""Mark an entry as used: a shared kernel lock on its `use` file, held as long as the process has it loaded.

The time of the file is that of the last use: of a load, and of the end of the use, unless the process was killed.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from msgspec import Struct

from gearcache.cache.files.trust import open_regular

#: Enough for the way from a worker through the fork server to the program that started it.
_MAX_PARENTS = 4


class _Held:
    """The shared lock of a use file. It ends with the last reference here and in forked children: it is never unlocked
    explicitly, as that would end it for all of them.
    """

    __slots__ = ("__weakref__", "descriptor")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def touch(self) -> None:
        with suppress(OSError):  # another user's file
            os.utime(self.descriptor)

    def __del__(self) -> None:
        self.touch()
        os.close(self.descriptor)


#: The locks of this process, by device and inode: one descriptor for an entry, however many methods have it loaded.
_shared_locks: WeakValueDictionary[tuple[int, int], _Held] = WeakValueDictionary()


@atexit.register
def _touch_all() -> None:
    """Record the end of all uses: the objects may outlive the interpreter."""
    for lock in list(_shared_locks.values()):
        lock.touch()


class Use:
    """A registered user of an entry; `close`, or the end of the object or of the process, ends it.

    A forked child shares it, and the use ends when both have ended theirs.
    """

    __slots__ = ("_held",)

    def __init__(self, lock: _Held) -> None:
        self._held: _Held | None = lock

    def count(self) -> None:
        """Count a load: the size of the file is the number of loads, its time that of the last one."""
        if self._held is not None:
            with suppress(OSError):  # opened for reading only, or a full disk
                os.write(self._held.descriptor, b"+")

    def touch(self) -> None:
        """Record the time of a load that does not count."""
        if self._held is not None:
            self._held.touch()

    def close(self) -> None:
        """End the use; may be called again."""
        self._held = None


def register_use(path: Path, *, create: bool = False) -> Use | None:
    """Hold the use file of an entry; None where it is missing, is being removed, or cannot be locked.

    `create` makes the file, in a folder that exists. Never blocks or raises: a process that cannot register may still
    load.
    """
    lock = _existing_lock(path) or _lock(path, create)
    return Use(lock) if lock is not None else None


@contextmanager
def exclusive_use(path: Path, *, create: bool = False) -> Iterator[bool]:
    """Yield whether no process uses the entry; this stays so inside the `with`. Raises `OSError`, but not for an absent
    file.

    `create` makes the file where only the file is missing, so that no process can begin to use the entry meanwhile.
    """
    # Imported here: a relaunch uses entries, and removes none.
    from gearcache.cache.locks.lock import unlock

    try:
        descriptor = open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0))
    except (FileNotFoundError, NotADirectoryError):
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
        unlock(descriptor)
        os.close(descriptor)


class User(Struct, frozen=True):
    """A live process that has an entry loaded; `command` is empty where it cannot be read."""

    pid: int
    command: str


def users_of(path: Path) -> list[User]:
    """The processes that hold the lock of a use file, from `/proc/locks` on Linux; elsewhere none."""
    try:
        state = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    # `1: FLOCK  ADVISORY  READ 1234 fe:00:5678 0 EOF`; the device is written differently by some file systems.
    holders = set()
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(state.st_ino):
            holders.add(int(fields[4]))
    return [User(pid, _command(pid)) for pid in sorted(holders) if pid > 0]


def _command(pid: int) -> str:
    """Return the command line of a process; for a worker of `multiprocessing`, which has none, its parent's."""
    arguments = _arguments(pid)
    parent = pid
    for _ in range(_MAX_PARENTS):
        if not any(argument.startswith("from multiprocessing.") for argument in arguments):
            break
        parent = _parent(parent)
        arguments = _arguments(parent)
    text = " ".join([os.path.basename(arguments[0]), *arguments[1:]]) if arguments else ""  # noqa: PTH119 - a word, no path of ours
    return text if parent == pid or not text else f"worker of {parent}: {text}"


def _arguments(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in text.split(b"\0") if part]


def _parent(pid: int) -> int:
    """Return the id of the process that started another; 0, which is not a process, where unknown."""
    try:
        # The program name is in parentheses, and may contain any character.
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _existing_lock(path: Path) -> _Held | None:
    """Return the lock that this process already holds on the file: a locked file keeps its name and its inode."""
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return _shared_locks.get((state.st_dev, state.st_ino))


def _lock(path: Path, create: bool) -> _Held | None:
    descriptor = _open(path, create)
    if descriptor is None:
        return None
    lock = _Held(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        state = os.fstat(descriptor)
    except OSError:
        return None
    # A process that removes the entry unlinks the file under the lock: then this file no longer belongs to the entry.
    if state.st_nlink == 0:
        return None
    return _shared_locks.setdefault((state.st_dev, state.st_ino), lock)


def _open(path: Path, create: bool) -> int | None:
    try:
        return open_regular(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0))
    except FileNotFoundError:
        return None
    except OSError:
        # This user may only read a shared cache; a shared lock needs no more.
        try:
            return open_regular(path, os.O_RDONLY)
        except OSError:
            return None
