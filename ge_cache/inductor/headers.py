"""Share the precompiled headers of Inductor among compile workers.

Each worker has a temporary folder of its own, and torch 2.13 (`codecache._HEADER_DIR`) keeps its headers in the
temporary folder: two files of 150 MB that take g++ 9 s. A killed worker leaves a partial header, which makes every
later compile fail. So headers are shared only after the compile that made them has ended.

What was made with another torch, compiler or target is in another folder: workers would take those headers for theirs,
and then each would compile its own, all at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from gearcache.ge_cache.inductor.targets import cpu_flags

#: Headers of g++ (those of clang hold the time of a file that each worker writes anew), and `runtime.py`.
_SUFFIXES = (".gch", ".o")
#: Each belongs to one compiler, its flags and the text of all included files.
_MAX_SHARED = 8
#: Of folders for one torch, compiler and target; each holds 300 MB.
_MAX_FOLDERS = 4

#: Makes an object, and returns its path; see `SharedHeaders.build`.
Build = Callable[[Callable[[], None] | None], str]


def shared_folder(root: Path, target: str) -> Path:
    """Return the folder below `root` for what this process would compile; those unused for longest are removed."""
    compiler = shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or ""
    status = os.stat(compiler) if compiler else None
    facts = [
        *(
            torch.__version__,
            str(torch.version.git_version),
            torch.__file__,
            __file__,
            sys.base_prefix,
            target,
            *cpu_flags(),
        ),
        *(os.path.realpath(compiler), f"{status.st_size} {status.st_mtime_ns}" if status else ""),
    ]
    folder = root / hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    with contextlib.suppress(OSError):
        if folder.exists():
            os.utime(folder)
        folders = [path for path in root.iterdir() if path.is_dir() and path != folder]
        others = sorted(folders, key=lambda path: path.stat().st_mtime)
        for path in others[: max(0, len(others) + 1 - _MAX_FOLDERS)]:
            shutil.rmtree(path, ignore_errors=True)
    return folder


class SharedHeaders:
    """The headers of this worker, and a folder for sharing them among workers of this user; never raises `OSError`.

    Names are digests of the inputs of the headers. No other user may write to `shared` or above it.
    """

    def __init__(self, shared: Path, own: Path) -> None:
        self._shared = shared
        self._folder = own

    def build(self, build: Build, tell: Callable[[], None] = lambda: None) -> str:
        """Return the result of `build`, which finds the shared headers in the worker's folder and is called with None.

        Where none exist, the first worker makes them on the way: its `build` gets a function, to be called once they
        are complete. The others wait until then. `tell` is called before that, whichever worker makes them: it takes
        long.
        """
        if self._take():
            return build(None)
        tell()
        with contextlib.ExitStack() as locked:
            with contextlib.suppress(OSError):
                self._shared.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = os.open(self._shared / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                locked.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._take():

                def are_complete() -> None:
                    self.give()
                    locked.close()

                return build(are_complete)
        return build(None)

    def _take(self) -> bool:
        """Put the shared headers into the worker's own folder; returns whether any existed."""
        has_shared = False
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            for path in _files(self._shared):
                if not path.is_symlink() and path.stat().st_uid == os.geteuid():
                    _link(path, self._folder / path.name)
                    has_shared = True
        return has_shared

    def give(self) -> None:
        """Share the finished headers of the worker that are not shared yet."""
        with contextlib.suppress(OSError):
            # Found first: each that is published may take the place of one of this worker that is shared.
            for path in [path for path in _files(self._folder) if not (self._shared / path.name).exists()]:
                self._publish(path)

    def _publish(self, path: Path) -> None:
        shared_headers = sorted(_files(self._shared), key=lambda header: header.stat().st_mtime)
        for header in shared_headers[: max(0, len(shared_headers) + 1 - _MAX_SHARED)]:
            header.unlink(missing_ok=True)
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
    """Give a file a second name, or copy it where the target is on another file system."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        pass
    except OSError:
        shutil.copyfile(source, target)
