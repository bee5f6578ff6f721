"""The files of a cache with packed entries only, for images and baked folders."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import BinaryIO

from msgspec import Struct

from gearcache.cache.admin.packed.packing import Packing
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import MANIFEST_NAME
from gearcache.errors import CorruptEntry

_BUCKET = f"v{FORMAT_VERSION}"


class Member(Struct, frozen=True):
    """A file of a cache, named from its root on; `open` gives exactly `size` bytes."""

    name: str
    size: int
    open: Callable[[], AbstractContextManager[BinaryIO]]


def members_of(packed: Packing) -> Iterator[Member]:
    """Yield blobs first, then the manifests that name them; `open` verifies, with the errors of `Packing.blob`."""
    for digest, size in packed.sizes.items():
        yield Member(f"{_BUCKET}/blobs/{digest[:2]}/{digest}", size, partial(_blob, packed, digest, size))
    for entry, data, _ in packed.manifests:
        name = "/".join(filter(None, (_BUCKET, "entries", *entry.identity, MANIFEST_NAME)))
        yield Member(name, len(data), partial(_bytes, data))


@contextmanager
def _blob(packed: Packing, digest: str, size: int) -> Iterator[BinaryIO]:
    with packed.blob(digest) as file:
        stored_size = os.fstat(file.fileno()).st_size
        if stored_size != size:
            raise CorruptEntry(f"blob {digest}", f"it has {stored_size} bytes, where an entry says {size}")
        yield file


def _bytes(data: bytes) -> AbstractContextManager[BinaryIO]:
    return nullcontext(io.BytesIO(data))
