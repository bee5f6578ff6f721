"""Copy entries out of a cache while they are in use, verifying every byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from gearcache.cache.admin.row import EntryRow
from gearcache.cache.layout import MANIFEST_NAME, USE_NAME, Layout
from gearcache.cache.locks.use import register_use
from gearcache.cache.manifest import Manifest, read_manifest_to_copy
from gearcache.cache.store import DiskStore

#: Returns a manifest with the signatures to be stored with it.
Sign = Callable[[bytes], bytes]


def as_it_is(data: bytes) -> bytes:
    """Return a manifest unchanged, with the signatures that it has."""
    return data


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
