"""The protocol of a store of entries and blobs, in files or in memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from gearcache.cache.keys.key import CacheKey, Plain
from gearcache.cache.manifest import Manifest
from gearcache.cache.result import Hit, Miss


class Store(Protocol):
    """The methods of a store that the wrapper needs; `tests/support/conformance.py` holds their laws.

    Safe to use from several threads and processes at once: readers take no lock, and only `publish` needs the caller to
    hold `exclusive`.
    """

    def lookup(self, key: CacheKey, *, explain: bool = True) -> Hit | Miss:
        """Find the entry of a key; `explain=False` does not look for the nearest one."""

    def load(self, key: CacheKey, *, explain: bool = True) -> Hit | Miss:
        """Like `lookup`, and protect the entry from eviction as long as this store lives."""

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is present, unverified."""

    def blob_size(self, digest: str) -> int:
        """The size of a blob in bytes, unverified."""

    def read_blob(self, digest: str) -> bytes:
        """The verified bytes of a blob."""

    def blob_file(self, digest: str) -> AbstractContextManager[str]:
        """The name of a file with the verified bytes of a blob, to be loaded by a backend inside the `with`."""

    def put_blob(self, data: bytes) -> str:
        """Store bytes under their sha256, and return it."""

    def publish(
        self,
        key: CacheKey,
        payload: Mapping[str, Plain],
        blobs: Mapping[str, int],
        producer: Mapping[str, Plain],
    ) -> Manifest:
        """Make the entry exist, or replace it; its blobs must be stored already."""

    def exclusive(self, key: CacheKey) -> AbstractContextManager[None]:
        """Be the only writer of a key on this host."""

    def writing(self) -> AbstractContextManager[None]:
        """Between `put_blob` and `publish`: keep the blobs from being collected as unreferenced."""

    def count_load(self, key: CacheKey, *, served: bool = True) -> None:
        """Note that an entry in use was loaded, for eviction, and for the counts where calls are `served` with it."""

    def keep_limits(self, key: CacheKey) -> None:
        """After a publish: drop other entries, if there are more than the store may hold."""
