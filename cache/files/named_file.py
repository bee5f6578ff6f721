"""Read files that the user names, such as keys, only where no other user could have replaced them."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gearcache.cache.files.parent_folders import TRUSTED_VARIABLE, check_parents
from gearcache.cache.files.trust import open_trusted
from gearcache.errors import UnsafePath

Key = TypeVar("Key")


def read_named(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    """Read up to one byte more than `limit` of a file, behind links too; also returns its state.

    Raises `UnsafePath` where other users may have changed or replaced it: users who may write in a folder above it, or
    above a link to it. Raises `OSError` where it cannot be read.
    """
    _check_above(path)
    # A file mounted into a container is often a link to its current version.
    with open_trusted(path.resolve(strict=True)) as descriptor:
        return os.read(descriptor, limit + 1), os.fstat(descriptor)


def read_secret(path: Path, limit: int, remedy: str, parse: Callable[[bytes], Key]) -> Key:
    """Read a key from a file that no other user may read or write.

    `parse` takes its bytes, more than `limit` where the file is too long, and raises `UnsafePath` for anything but a
    key: the name may be that of a file which others have to read. `UnsafePath` also where others may read or write it;
    `remedy` says how to fix it where it cannot be read.
    """
    try:
        data, state = read_named(path, limit)
    except OSError as error:
        raise UnsafePath(path, f"the key cannot be read: {error.strerror}", remedy) from error
    key = parse(data)
    # As in ssh: a file owned by root may be readable by a group, which is how other users get a mounted secret.
    readers = stat.S_IROTH | (stat.S_IRGRP if state.st_uid == os.geteuid() else 0)
    if state.st_mode & readers:
        mode = stat.S_IMODE(state.st_mode)
        command = f"chmod go-r {shlex.quote(str(path.resolve()))}"
        remedy = f"if it holds the key and nothing else, run `{command}`"
        raise UnsafePath(path, f"its mode {mode:04o} lets others read the key", remedy)
    return key


def _check_above(path: Path) -> None:
    """Refuse a file where other users may rename files beside it, or beside a link to it: they could replace it."""
    try:
        check_parents(path)
    except UnsafePath as error:
        remedy = f"move it to a folder that only you can write, or name that one in `{TRUSTED_VARIABLE}`"
        raise UnsafePath(path, f"others may change `{error.path}`, and so exchange the key", remedy) from error
