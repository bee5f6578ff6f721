"""Open regular files only; refuse links, pipes, devices."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


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
