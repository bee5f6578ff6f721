"""Precompiled headers of Inductor's, shared by compile workers.

Each worker has a temporary folder of its own, and torch 2.13 (`codecache._HEADER_DIR`) keeps its headers in the
temporary folder: two files of 150 MB that take g++ 9 s. A worker that is killed leaves half of one behind, which ends
every later compile in an error; so none is shared before the compile that made it has come to its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

#: Headers of g++ (those of clang hold the time of a file that each worker writes anew), and `runtime.py`.
_SUFFIXES = (".gch", ".o")
#: Each is of one compiler, its flags and the text of all that it includes.
_MAX_SHARED = 8


class SharedHeaders:
    """The headers of this worker, and a folder in which workers of this user leave theirs; `OSError` never comes out.

    Names are digests of what the headers were made of. Nobody else may write to `shared` or above it.
    """

    def __init__(self, shared: Path, own: Path) -> None:
        self._shared = shared
        self._own = own

    def provide(self, build: Callable[[], None], tell: Callable[[], None] = lambda: None) -> None:
        """Take what is shared; where there is nothing, build headers once for all workers, which wait meanwhile.

        `tell` is called before that, whoever builds them: it takes long.
        """
        if self._take():
            return
        tell()
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):
                self._shared.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = os.open(self._shared / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                held.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._take():
                build()
                self.give()

    def _take(self) -> bool:
        """Put the shared headers into the worker's own folder; returns whether there were any."""
        taken = False
        with contextlib.suppress(OSError):
            self._own.mkdir(parents=True, exist_ok=True)
            for path in _files(self._shared):
                if not path.is_symlink() and path.stat().st_uid == os.geteuid():
                    _link(path, self._own / path.name)
                    taken = True
        return taken

    def give(self) -> None:
        """Share the headers of the worker, none of which is being written, that are not there yet."""
        with contextlib.suppress(OSError):
            for path in _files(self._own):
                if not (self._shared / path.name).exists():
                    self._publish(path)

    def _publish(self, path: Path) -> None:
        others = sorted(_files(self._shared), key=lambda other: other.stat().st_mtime)
        for other in others[: max(0, len(others) + 1 - _MAX_SHARED)]:
            other.unlink(missing_ok=True)
        hidden = self._shared / f".{path.name}.{os.getpid()}"
        try:
            _link(path, hidden)
            with hidden.open("rb") as file:
                os.fsync(file.fileno())
            hidden.replace(self._shared / path.name)
        finally:
            hidden.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.suffix in _SUFFIXES and not path.name.startswith(".")]


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where it lies on another file system."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        pass
    except OSError:
        shutil.copyfile(source, target)
