"""Write the one layer of an image: a tar, compressed by gzip, that is byte-identical for the same files."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from msgspec import Struct

from gearcache.cache.admin.packed.archive import add_file
from gearcache.cache.admin.packed.image.documents import LAYER_TYPE, Descriptor
from gearcache.cache.admin.packed.packing import Member

#: The folder of the cache in a layer: a container of this image, or one that mounts it at `/`, finds the cache there.
ROOT = "var/cache/gearcache"
#: With a gzip header that holds no time.
_GZIP = 31
_LEVEL = 6


class Layer(Struct, frozen=True):
    """A written layer: its descriptor as stored, its sha256 without compression, and bytes of its files."""

    descriptor: Descriptor
    diff_id: str
    size: int


def write_layer(target: BinaryIO, members: Iterable[Member]) -> Layer:
    """Write files, and the folders above them, in the order of their names.

    All files belong to root, are writable only by root, and have no time. Errors of a member's `open` are passed on.
    """
    sorted_members = sorted(members, key=lambda member: member.name)
    packed = _Digesting(target)
    plain = _Compressing(packed)
    folders: set[PurePosixPath] = set()
    with tarfile.open(fileobj=cast(BinaryIO, plain), mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add_folders(tar, PurePosixPath(ROOT) / "any", folders)
        for member in sorted_members:
            path = PurePosixPath(ROOT, member.name)
            _add_folders(tar, path, folders)
            with member.open() as file:
                add_file(tar, str(path), file, member.size, 0o644)
    plain.finish()
    descriptor = Descriptor(LAYER_TYPE, f"sha256:{packed.state.hexdigest()}", packed.size)
    return Layer(descriptor, f"sha256:{plain.state.hexdigest()}", sum(member.size for member in sorted_members))


def _add_folders(tar: tarfile.TarFile, path: PurePosixPath, present_folders: set[PurePosixPath]) -> None:
    for folder in reversed(path.parents[:-1]):
        if folder not in present_folders:
            present_folders.add(folder)
            entry = tarfile.TarInfo(str(folder))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)


class _Digesting:
    """A file that counts and digests the bytes written to it."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.state = sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.state.update(data)
        self.size += len(data)
        self._target.write(data)
        return len(data)


class _Compressing:
    """A file that digests the bytes written to it, and writes them compressed into another file."""

    def __init__(self, target: _Digesting) -> None:
        self._target = target
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._size = 0
        self.state = sha256()

    def write(self, data: bytes) -> int:
        self.state.update(data)
        self._size += len(data)
        self._target.write(self._compressor.compress(data))
        return len(data)

    def tell(self) -> int:
        return self._size

    def finish(self) -> None:
        self._target.write(self._compressor.flush())
