"""Copy entries out of a cache while they are in use, verifying every byte."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from gearcache.cache.admin.row import EntryRow
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import MANIFEST_NAME, USE_NAME, Layout
from gearcache.cache.locks.use import register_use
from gearcache.cache.manifest import Manifest, read_manifest_to_copy
from gearcache.cache.store import DiskStore
from gearcache.errors import CorruptEntry

#: Returns a manifest with the signatures to be stored with it.
Sign = Callable[[bytes], bytes]


def as_it_is(data: bytes) -> bytes:
    """Return a manifest unchanged, with the signatures that it has."""
    return data


class Packed(Struct, frozen=True):
    """What was written: names of entries, number and bytes of their blobs; of an image also its digest."""

    entries: list[str]
    blobs: int
    size: int
    digest: str = ""


class Member(Struct, frozen=True):
    """A file of a cache, named from its root on; `open` gives exactly `size` bytes."""

    name: str
    size: int
    open: Callable[[], AbstractContextManager[BinaryIO]]


class Packing:
    """The manifests of some entries, and the blobs that they need; made by `packing`."""

    def __init__(self, layout: Layout, entries: list[EntryRow], sign: Sign) -> None:
        self.manifests: list[tuple[EntryRow, bytes, Manifest]] = []
        for entry in entries:
            data, manifest = read_manifest_to_copy(layout.entry(*entry.identity) / MANIFEST_NAME)
            self.manifests.append((entry, sign(data), manifest))
        #: Bytes of each blob by its sha256, as the manifests say; each once.
        self.sizes = {digest: size for _, _, manifest in self.manifests for digest, size in manifest.blobs.items()}
        self._store = DiskStore(layout)

    @contextmanager
    def blob(self, digest: str) -> Iterator[BinaryIO]:
        """Open the file that was just verified; `CorruptEntry` if it is damaged or missing, or another `CacheError`."""
        with self._store.blob_file(digest) as name, Path(name).open("rb") as file:
            yield file

    def members(self) -> Iterator[Member]:
        """Yield the files of a cache with these entries only: blobs first, then the manifests that name them.

        `Member.open` verifies, with the errors of `blob`.
        """
        bucket = f"v{FORMAT_VERSION}"
        for digest, size in self.sizes.items():
            yield Member(f"{bucket}/blobs/{digest[:2]}/{digest}", size, partial(self._sized_blob, digest, size))
        for entry, data, _ in self.manifests:
            name = "/".join(filter(None, (bucket, "entries", *entry.identity, MANIFEST_NAME)))
            yield Member(name, len(data), partial(_bytes, data))

    def summary(self, digest: str = "") -> Packed:
        """Return what it holds."""
        names = sorted(entry.name for entry, _, _ in self.manifests)
        return Packed(names, len(self.sizes), sum(self.sizes.values()), digest)

    @contextmanager
    def _sized_blob(self, digest: str, size: int) -> Iterator[BinaryIO]:
        with self.blob(digest) as file:
            stored_size = os.fstat(file.fileno()).st_size
            if stored_size != size:
                raise CorruptEntry(f"blob {digest}", f"it has {stored_size} bytes, where an entry says {size}")
            yield file


@contextmanager
def packing(layout: Layout, entries: Iterable[EntryRow], sign: Sign = as_it_is) -> Iterator[Packing]:
    """Keep entries from being removed inside the `with`; `sign` may sign their manifests.

    Raises `CacheError` when a manifest is missing, damaged or untrusted, and the errors of `sign`.
    """
    rows = list(entries)
    with ExitStack() as stack:
        for entry in rows:
            use = register_use(layout.entry(*entry.identity) / USE_NAME)
            if use is not None:
                stack.callback(use.close)
        yield Packing(layout, rows, sign)


def _bytes(data: bytes) -> AbstractContextManager[BinaryIO]:
    return nullcontext(io.BytesIO(data))
