"""Putting a finished folder in the place of another one, so that no moment is without either."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_WORKING_FOLDER = -100
_EXCHANGE = 2
#: The file system or the kernel knows no exchange.
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


def put_in_place(new: Path, target: Path, aside: Path) -> None:
    """Rename the folder `new` to `target`; what lay there is `new` afterwards, or `aside` with a number.

    Where the system can exchange two folders, `target` is one of both at every moment. Elsewhere it is missing between
    two renames, and both are whole beside it. `OSError` for a `target` that is no folder or cannot be renamed.
    """
    attempt = 0
    while True:
        try:
            new.rename(target)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
        else:
            return
        if exchange(new, target):
            return
        attempt += 1
        moved = aside.with_name(f"{aside.name}{attempt}")
        try:
            target.rename(moved)
        except FileNotFoundError:
            continue  # another process replaces it as well
        try:
            new.rename(target)
        except OSError as error:
            if error.errno in _NOT_EMPTY:
                continue  # another process was faster
            moved.rename(target)
            raise
        return


def exchange(first: Path, second: Path) -> bool:
    """Let two folders of one file system swap names in one step; False where the system cannot. `OSError` else."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    arguments = (_AT_WORKING_FOLDER, os.fsencode(first), _AT_WORKING_FOLDER, os.fsencode(second), _EXCHANGE)
    if call(*arguments) == 0:
        return True
    number = ctypes.get_errno()
    if number in (*_UNKNOWN, errno.ENOENT):  # a folder that has gone meanwhile is met by the renames
        return False
    raise OSError(number, os.strerror(number), str(second))
