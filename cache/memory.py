"""A store of this process alone, for when its folder cannot be used: it needs no disk."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256

from gearcache.cache.files.trust import opened_name
from gearcache.cache.keys.key import CacheKey, Plain
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest, decode_manifest, encode_manifest
from gearcache.cache.result import Hit, Miss, MissReason
from gearcache.errors import CacheError, CorruptEntry, LockTimeout, PublishError
from gearcache.threads import waiting_time

_SEALS = ("F_SEAL_WRITE", "F_SEAL_GROW", "F_SEAL_SHRINK", "F_SEAL_SEAL")


class MemoryStore:
    """Entries and blobs in memory; `layout` gives their names in messages."""

    def __init__(self, layout: Layout, lock_timeout: float) -> None:
        self.layout = layout
        self.lock_timeout = lock_timeout
        self._manifests: dict[str, bytes] = {}
        self._blobs: dict[str, bytes] = {}
        self._locks: dict[str, threading.Lock] = {}

    def lookup(self, key: CacheKey, *, explain: bool = True) -> Hit | Miss:
        """Find the entry of a key."""
        data = self._manifests.get(key.name)
        if data is None:
            return Miss(MissReason.ABSENT, f"no entry for `{key.label}`")
        return Hit(decode_manifest(data, self.layout.manifest(key)))

    def load(self, key: CacheKey, *, explain: bool = True) -> Hit | Miss:
        """Like `lookup`: nothing is evicted here."""
        return self.lookup(key)

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is present."""
        return digest in self._blobs

    def blob_size(self, digest: str) -> int:
        """The size of a blob in bytes; `CorruptEntry` when it is missing."""
        return len(self.read_blob(digest))

    def read_blob(self, digest: str) -> bytes:
        """The bytes of a blob; `CorruptEntry` when it is missing."""
        path = self.layout.blob(digest)
        try:
            return self._blobs[digest]
        except KeyError:
            raise CorruptEntry(path, "the blob is missing") from None

    @contextmanager
    def blob_file(self, digest: str) -> Iterator[str]:
        """Yield the name of a file in memory with the bytes of a blob; `CacheError` where it cannot be made."""
        data = self.read_blob(digest)
        try:
            descriptor = os.memfd_create(f"gearcache {digest}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except (OSError, AttributeError) as error:
            raise CacheError(f"the blob {digest} cannot be a file in memory: {error}") from error
        try:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, sum(getattr(fcntl, seal) for seal in _SEALS))
            except OSError as error:
                raise CacheError(f"the blob {digest} cannot be a file in memory: {error.strerror}") from error
            yield opened_name(descriptor, self.layout.blob(digest))
        finally:
            os.close(descriptor)

    def put_blob(self, data: bytes) -> str:
        """Keep bytes under their sha256."""
        digest = sha256(data).hexdigest()
        self._blobs[digest] = bytes(data)
        return digest

    def publish(
        self,
        key: CacheKey,
        payload: Mapping[str, Plain],
        blobs: Mapping[str, int],
        producer: Mapping[str, Plain],
    ) -> Manifest:
        """Make the entry exist, or replace it."""
        path = self.layout.manifest(key)
        for digest, size in blobs.items():
            stored_size = len(self._blobs[digest]) if digest in self._blobs else None
            if stored_size != size:
                state = "is not stored" if stored_size is None else f"has {stored_size} bytes instead of {size}"
                raise PublishError(path, f"the blob {digest} {state}")
        manifest = Manifest(
            name=key.name,
            key_digest=key.digest,
            components=key.lowered(),
            payload=dict(payload),
            blobs=dict(blobs),
            created=time.time(),
            producer=dict(producer),
        )
        try:
            self._manifests[key.name] = encode_manifest(manifest)
        except (TypeError, ValueError) as error:
            raise PublishError(path, f"the entry cannot be stored: {error}") from error
        return manifest

    @contextmanager
    def exclusive(self, key: CacheKey) -> Iterator[None]:
        """Be the only writer of a key in this process."""
        lock = self._locks.setdefault(key.name, threading.Lock())
        seconds = waiting_time(self.lock_timeout)
        if not lock.acquire(timeout=seconds):
            raise LockTimeout(self.layout.lock(key.name), seconds)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Does nothing: blobs in memory are never collected."""
        yield

    def count_load(self, key: CacheKey, *, served: bool = True) -> None:
        """Does nothing: nothing reads the loads of a store in memory."""

    def keep_limits(self, key: CacheKey) -> None:
        """Does nothing: the memory of the process is the limit."""
