"""Load shared objects through a copy in memory, from a place where code must not run (a mount with `noexec`).

A process keeps each copy, one for equal objects, for as long as it lives: the loader recognises a loaded file by its
inode.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

#: The copies of this process, by sha256: the descriptor, and the identity that it must still have.
_copies: dict[str, tuple[int, tuple[int, int]]] = {}


def name_of_copy(library: str, digest: str) -> str:
    """Return a name from which a copy of a shared object with this sha256 can be loaded. Raises `OSError`."""
    from gearcache.cache.files.trust import opened_name

    descriptor, identity = _copies.get(digest, (-1, (0, 0)))
    if _identity(descriptor) != identity:  # no copy yet, or the program has closed its descriptor
        descriptor = in_memory(Path(library).read_bytes())
        _copies[digest] = descriptor, _identity(descriptor)
    return opened_name(descriptor, Path(library))


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return (-1, -1)
    return status.st_dev, status.st_ino


def in_memory(data: bytes) -> int:
    """Return the descriptor of a file with these bytes, from which code may run.

    It is in memory, as a folder may forbid running code, or, where the kernel refuses that (`vm.memfd_noexec=2`, a
    filter of system calls), an unnamed file.
    """
    try:
        descriptor = os.memfd_create("gearcache", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with open(descriptor, "wb", closefd=False) as target:
        target.write(data)
    return descriptor
