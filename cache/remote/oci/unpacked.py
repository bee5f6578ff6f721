"""Reading the layer of an image: into a file without a name, verified while it streams, and then by names."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import BinaryIO, cast

from gearcache.cache.admin.archive import MAX_MEMBERS, BoundedReads
from gearcache.cache.remote.oci.documents import MAX_LAYER_SIZE, Descriptor, ImageError
from gearcache.cache.remote.oci.layer import ROOT

_PIECE = 1 << 20
_GZIP = 31


class UnpackedLayer:
    """The files below the root of the cache in a layer. They lie in a file that goes with the object or the process.

    Nothing that a name says is ever used as a path. Safe to use from several threads and in forked children.
    """

    def __init__(self, file: BinaryIO, check: Callable[[], object]) -> None:
        self._places = _places(file, check)
        self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None where there is none."""
        place = self._places.get(name)
        return None if place is None else place[1]

    def read(self, name: str) -> bytes:
        """Return the bytes of a file that is there. Raises `OSError`."""
        at, size = self._places[name]
        data = bytearray()
        while len(data) < size:
            piece = os.pread(self._descriptor, size - len(data), at + len(data))
            if not piece:
                raise OSError("the unpacked layer was cut")
            data += piece
        return bytes(data)

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, sorted."""
        return sorted(name for name in self._places if name.startswith(prefix))


def unpack_layer(
    pieces: Iterable[bytes],
    layer: Descriptor,
    diff_id: str,
    *,
    check: Callable[[], object] = lambda: None,
    most: int | None = None,
) -> UnpackedLayer:
    """Unpack a layer as it arrives.

    `ImageError` where it has other bytes than its descriptor and `diff_id` say, more than `most` when unpacked (by
    default 16 GiB, and half of the space for temporary files), or holds something else than files and folders.
    `check` is called all the time, and may raise to end it. Raises `OSError` where nothing can be written.
    """
    if most is None:
        most = min(MAX_LAYER_SIZE, shutil.disk_usage(tempfile.gettempdir()).free // 2)
    with tempfile.TemporaryFile(prefix="gearcache-layer-") as unnamed:
        file = cast(BinaryIO, unnamed)
        state, size = sha256(), 0
        for piece in _decompressed(_verified(pieces, layer)):
            check()
            size += len(piece)
            if size > most:
                raise ImageError(f"its layer has more than {most} bytes when it is unpacked")
            state.update(piece)
            file.write(piece)
        if f"sha256:{state.hexdigest()}" != diff_id:
            raise ImageError("its layer does not hold what its config says")
        file.flush()
        return UnpackedLayer(file, check)


def _verified(pieces: Iterable[bytes], layer: Descriptor) -> Iterator[bytes]:
    state, size = sha256(), 0
    for piece in pieces:
        size += len(piece)
        if size > layer.size:
            raise ImageError(f"its layer has more than the {layer.size} bytes that its manifest says")
        state.update(piece)
        yield piece
    if size != layer.size:
        raise ImageError(f"its layer is cut off after {size} of {layer.size} bytes")
    if f"sha256:{state.hexdigest()}" != layer.digest:
        raise ImageError(f"it gives other bytes for {layer.digest}")


def _decompressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Bytes without gzip, at most 1 MiB at a time whatever they were compressed to; there may be several streams."""
    stream = zlib.decompressobj(_GZIP)
    try:
        for piece in pieces:
            while piece:
                if stream.eof:
                    stream = zlib.decompressobj(_GZIP)
                yield stream.decompress(piece, _PIECE)
                piece = stream.unused_data if stream.eof else stream.unconsumed_tail
            while not stream.eof and (rest := stream.decompress(b"", _PIECE)):
                yield rest
    except zlib.error as error:
        raise ImageError(f"its layer is not compressed by gzip, or damaged: {error}") from error
    if not stream.eof:
        raise ImageError("its layer ends within its compression")


def _places(file: BinaryIO, check: Callable[[], object]) -> dict[str, tuple[int, int]]:
    """Where the files below the root lie: offset and size by name."""
    end = os.fstat(file.fileno()).st_size
    file.seek(0)
    places: dict[str, tuple[int, int]] = {}
    seen: set[str] = set()
    try:
        with tarfile.open(fileobj=cast(BinaryIO, BoundedReads(file)), mode="r:") as tar:
            for member in tar:
                check()
                tar.members = []  # type: ignore[attr-defined]  # else it keeps all of them
                name = _name(member)
                if name in seen or len(seen) >= MAX_MEMBERS:
                    raise ImageError(f"its layer holds `{name}` twice, or more than {MAX_MEMBERS} files and folders")
                seen.add(name)
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    raise ImageError(f"its layer holds `{name}`, which is no regular file")
                if not 0 <= member.size <= end - member.offset_data:
                    raise ImageError(f"its layer holds `{name}` of {member.size} bytes, and ends before")
                if name.startswith(f"{ROOT}/"):
                    places[name[len(ROOT) + 1 :]] = (member.offset_data, member.size)
    except (tarfile.TarError, EOFError, OverflowError, RecursionError, ValueError) as error:
        if isinstance(error, ImageError):
            raise
        raise ImageError(f"its layer is no tar, or damaged: {error}") from error
    return places


def _name(member: tarfile.TarInfo) -> str:
    name = member.name.removeprefix("./").rstrip("/") if member.isdir() else member.name.removeprefix("./")
    if member.isdir() and name in ("", "."):
        return name
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ImageError(f"its layer holds `{member.name}`, which leads elsewhere")
    return name
