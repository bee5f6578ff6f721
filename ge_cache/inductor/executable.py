"""Shared objects in a place that forbids that code is run from it (a mount with `noexec`): a copy in memory is loaded.

A process keeps each copy, of equal objects one, for as long as it lives: the loader takes a file that it has loaded for
the same one by its inode, and so do idle runners.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256
from pathlib import Path

#: Of the copies of this process, by sha256: the descriptor, and what it must still be.
_copies: dict[str, tuple[int, tuple[int, int]]] = {}


def name_of_copy(library: str) -> str:
    """Return a name from which a copy of a shared object can be loaded. Raises `OSError`."""
    from gearcache.cache.trust import opened_name

    data = Path(library).read_bytes()
    digest = sha256(data).hexdigest()
    descriptor, identity = _copies.get(digest, (-1, (0, 0)))
    if _identity(descriptor) != identity:  # none, or a program has closed it with others that it does not know
        descriptor = _copy(data)
        _copies[digest] = descriptor, _identity(descriptor)
    return opened_name(descriptor, Path(library))


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return (-1, -1)
    return found.st_dev, found.st_ino


def _copy(data: bytes) -> int:
    """Return the descriptor of a file with these bytes: in memory, or, where the kernel gives none, a nameless one."""
    try:
        descriptor = os.memfd_create("gearcache", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with open(descriptor, "wb", closefd=False) as target:
        target.write(data)
    return descriptor
