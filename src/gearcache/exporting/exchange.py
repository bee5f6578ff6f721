"""Puts a finished folder in the place of another one, so that one of them is complete at every moment."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_WORKING_FOLDER = -100
_EXCHANGE = 2
#: Errors of a file system or kernel that does not support the exchange.
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


def put_in_place(new: Path, target: Path, aside: Path) -> None:
    """Rename the folder `new` to `target`; the old folder is then at `new`, or at `aside` with a number.

    If the system can exchange two folders, `target` exists at every moment. Otherwise it is missing between two
    renames, while both complete folders exist beside it. `OSError` if `target` is not a folder or cannot be renamed.
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
    """Exchange the names of two folders of one file system in one step; False if unsupported, `OSError` if it fails."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    arguments = (_AT_WORKING_FOLDER, os.fsencode(first), _AT_WORKING_FOLDER, os.fsencode(second), _EXCHANGE)
    if call(*arguments) == 0:
        return True
    number = ctypes.get_errno()
    if number in (*_UNKNOWN, errno.ENOENT):  # the renames handle a folder that was removed in the meantime
        return False
    raise OSError(number, os.strerror(number), str(second))
