"""Helpers for tar files of entries: shared by bundles and by layers of images."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import BinaryIO

#: More files than any cache has; a reader of an archive keeps their names in memory.
MAX_MEMBERS = 1 << 18
PIECE = 1 << 20


class BoundedReads:
    """A file that refuses huge reads: tarfile reads extended headers whole, whatever length they claim."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        """Read as the file does; `ValueError` for more than headers and pieces need."""
        if not 0 <= size <= 2 * PIECE:
            raise ValueError(f"a header of {size} bytes")
        return self._file.read(size)


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """Read a file to its end, 1 MiB at a time."""
    return iter(lambda: file.read(PIECE), b"")


def add_file(tar: tarfile.TarFile, name: str, file: BinaryIO, size: int, mode: int = 0o600) -> None:
    """Add a file that belongs to root and has no time, so that the same content gives the same archive."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    tar.addfile(member, file)
