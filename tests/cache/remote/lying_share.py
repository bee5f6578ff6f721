"""A file system that lies as shares do: a program that mounts a folder a second time, with faults as it is told to.

`python lying_share.py FOLDER MOUNT LIBRARY`; then a line of JSON on its standard input sets the faults and is answered
by a line, and its end unmounts. Two mounts of one folder are two hosts: locks are those of a mount. The faults:

- `errors`: from an operation to the name of an errno and how often; an operation `after:rename` is done nevertheless,
  as where an answer is lost; the name HANG never answers
- `short`: so many bytes at most are read at once
- `end`: files seem to end after so many bytes; `size`: this is added to the sizes that are told
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from typing import Any

TIMES = ("st_mode", "st_size", "st_uid", "st_gid", "st_nlink", "st_ino")


def operations(backing: str, faults: dict[str, Any]) -> Any:
    """Return the operations of `mfusepy` on a folder, with the faults of a dictionary that may change."""
    import mfusepy

    def fail(name: str) -> None:
        error, count = faults.get("errors", {}).get(name, ("", 0))
        if count == 0:
            return
        faults["errors"][name] = [error, count - 1]
        if error == "HANG":
            time.sleep(3600)
        raise mfusepy.FuseOSError(getattr(errno, error))

    class Operations(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            fail("getattr")
            # What is open is asked by its handle.
            found = os.fstat(fh) if fh else os.lstat(backing + path)
            told = {name: getattr(found, name) for name in TIMES}
            told |= {f"st_{name}time": getattr(found, f"st_{name}time_ns") for name in "amc"}
            if os.path.isfile(backing + path):  # noqa: PTH113
                told["st_size"] = max(0, told["st_size"] + faults.get("size", 0))
            return told

        def readdir(self, path: str, fh: int) -> list[str]:
            fail("readdir")
            return [".", "..", *os.listdir(backing + path)]  # noqa: PTH208

        def open(self, path: str, flags: int) -> int:
            fail("open")
            return os.open(backing + path, flags & ~os.O_CREAT)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            fail("create")
            return os.open(backing + path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            fail("read")
            size = min(size, faults.get("short", size), max(0, faults.get("end", 1 << 60) - offset))
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            fail("write")
            return os.pwrite(fh, data, offset)

        def flush(self, path: str, fh: int) -> None:
            fail("flush")

        def fsync(self, path: str, datasync: int, fh: int) -> None:
            fail("fsync")
            os.fsync(fh)

        def release(self, path: str, fh: int) -> None:
            os.close(fh)

        def mkdir(self, path: str, mode: int) -> None:
            fail("mkdir")
            os.mkdir(backing + path, mode)  # noqa: PTH102

        def rename(self, old: str, new: str) -> None:
            fail("rename")
            os.rename(backing + old, backing + new)  # noqa: PTH104
            fail("after:rename")

        def link(self, target: str, source: str) -> None:
            fail("link")
            os.link(backing + source, backing + target)
            fail("after:link")

        def unlink(self, path: str) -> None:
            fail("unlink")
            os.unlink(backing + path)

        def rmdir(self, path: str) -> None:
            raise mfusepy.FuseOSError(errno.EBUSY)

    return Operations()


def main(backing: str, mount: str, library: str) -> None:
    """Mount it until the standard input ends."""
    os.environ["FUSE_LIBRARY_PATH"] = library
    import ctypes

    import mfusepy

    faults: dict[str, Any] = {}

    def listen() -> None:
        for line in sys.stdin:
            faults.clear()
            faults.update(json.loads(line))
            print("set", flush=True)
        ctypes.CDLL(None).umount2(os.fsencode(mount), 2)  # MNT_DETACH: also where something hangs in it
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    # No memory of the kernel; reads are passed on as they are.
    mfusepy.FUSE(
        operations(backing, faults),
        mount,
        foreground=True,
        nothreads=False,
        direct_io=True,
        entry_timeout=0,
        attr_timeout=0,
        negative_timeout=0,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
