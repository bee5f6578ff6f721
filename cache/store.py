"""The store of entries and blobs in a folder; `cache/protocol.py` defines what any store does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gearcache.cache.blob_folder import BlobFolder, prepare_entry, prepare_folder
from gearcache.cache.keys.key import CacheKey, Plain
from gearcache.cache.layout import Layout
from gearcache.cache.limits import NO_LIMITS, Limits
from gearcache.cache.locks.use import Use, register_use
from gearcache.cache.manifest import Manifest, OtherFormat, read_manifest
from gearcache.cache.result import Hit as Hit
from gearcache.cache.result import Miss as Miss
from gearcache.cache.result import MissReason as MissReason
from gearcache.errors import CorruptEntry, UnsignedEntry

if TYPE_CHECKING:
    from gearcache.cache.signatures.key_pair import SigningKey
    from gearcache.cache.signatures.signature import Signer

DEFAULT_LOCK_TIMEOUT = 1800.0


class DiskStore(BlobFolder):
    """A store in a folder, as `Layout` draws it.

    Its only state is its options and the entries in use: many threads and processes may use one folder. A failed load
    deletes nothing; only corrupt files move to the quarantine. With a `signer`, entries are published signed, and
    unsigned ones are misses. A `signing_key` signs too, for other hosts; lookups do not check its signatures. With
    limits, `keep_limits` prunes.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
        clock: Callable[[], float] = time.time,
        signer: Signer | None = None,
        signing_key: SigningKey | None = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        super().__init__(layout, lock_timeout)
        self.clock = clock
        self.signer = signer
        self.signing_key = signing_key
        self.limits = limits
        self._uses: dict[Path, Use] = {}

    def lookup(self, key: CacheKey, *, explain: bool = True) -> Hit | Miss:
        """Find the entry of a key without taking a lock.

        Raises `UnsafePath`, what a signal handler of the program raises meanwhile, and nothing else. A hit costs the
        same in a cache of any size; the explanation of an absent entry does not.
        """
        path = self.layout.manifest(key)
        try:
            self._check_folder(path.parent)
            return Hit(read_manifest(path, key.digest, self.signer))
        except (FileNotFoundError, NotADirectoryError):
            return self._absent(key, explain)
        except OtherFormat as error:
            return Miss(MissReason.OTHER_VERSION, str(error))
        except CorruptEntry as error:
            from gearcache.cache.quarantine import quarantine

            quarantine(self.layout, error, f"{key.name}.manifest", lambda: read_manifest(path, key.digest))
            return Miss(MissReason.CORRUPT, str(error))
        except UnsignedEntry as error:
            return Miss(MissReason.UNSIGNED, str(error))
        except OSError as error:
            if error.errno is None:  # not the system's: a `TimeoutError` of a signal handler
                raise
            return Miss(MissReason.UNREADABLE, f"`{path}` cannot be read: {error.strerror}")

    def publish(
        self,
        key: CacheKey,
        payload: Mapping[str, Plain],
        blobs: Mapping[str, int],
        producer: Mapping[str, Plain],
    ) -> Manifest:
        """Write the manifest, whose presence makes the entry exist; the caller holds `exclusive(key)`.

        An existing entry is replaced atomically: readers see the whole old entry or the whole new one.
        """
        # Imported here: a relaunch publishes nothing.
        from gearcache.cache.entry_file import check_blobs, entry_bytes
        from gearcache.cache.files.atomic import write_atomic

        path = self.layout.manifest(key)
        manifest = Manifest(
            name=key.name,
            key_digest=key.digest,
            components=key.lowered(),
            payload=dict(payload),
            blobs=dict(blobs),
            created=float(self.clock()),
            producer=dict(producer),
        )
        data = entry_bytes(manifest, path)
        if self.signing_key is not None:
            data += self.signing_key.trailer(data)
        if self.signer is not None:
            data += self.signer.signature(data)
        with self.writing():
            check_blobs(self.layout, manifest, path)
            prepare_entry(self.layout, path.parent, manifest.blobs)
            # First, so that the entry never exists without being protected from eviction.
            self._register(key, create=True)
            write_atomic(path, data)
            with suppress(OSError):
                os.utime(self.layout.use(key))
        return manifest

    def keep_limits(self, key: CacheKey) -> None:
        """Remove entries over the limits of this store, but not the entry of this key; not inside `writing`.

        Never raises: where nothing can be removed now, the next publish does it.
        """
        if self.limits:
            from gearcache.cache.upkeep import keep_limits

            keep_limits(self.layout, self.limits, self._identity(key))

    @contextmanager
    def exclusive(self, key: CacheKey) -> Iterator[None]:
        """Hold the lock of a key; `LockTimeout`, or `PublishError` where nothing can be written.

        Look up again after entering: the entry may have been published while this waited.
        """
        from gearcache.cache.locks.lock import key_lock

        path = self.layout.lock(key.name)
        prepare_folder(self.layout, path.parent)
        with key_lock(path, self.lock_timeout):
            yield

    def load(self, key: CacheKey, *, explain: bool = True) -> Hit | Miss:
        """Like `lookup`, and use the entry: from here on it is not evicted."""
        is_used = self.use(key)
        result = self.lookup(key, explain=explain)
        if isinstance(result, Hit) and not is_used and self._register(key, create=True):
            # Published after the check of its use file, or brought here without one: it may have been removed since.
            result = self.lookup(key, explain=explain)
        return result

    def use(self, key: CacheKey) -> bool:
        """Keep the entry from being evicted as long as this store lives; call it before `lookup`.

        False where the entry is missing or cannot be locked; it may still be loaded.
        """
        return self._register(key, create=False)

    def count_load(self, key: CacheKey, *, served: bool = True) -> None:
        """Count a load of an entry in use; the time of the last load decides which entry is least recently used.

        A load that is not `served`, as by a prewarm, keeps the entry young and does not count as a hit.
        """
        use = self._uses.get(self.layout.use(key))
        if use is not None:
            (use.count if served else use.touch)()

    def _identity(self, key: CacheKey) -> tuple[str, str, str]:
        return key.safe_label, key.digest, self.layout.ranks

    def _register(self, key: CacheKey, *, create: bool) -> bool:
        path = self.layout.use(key)
        previous = self._uses.pop(path, None)
        use = register_use(path, create=create)
        if use is not None:
            self._uses[path] = use
        if previous is not None:
            previous.close()
        return use is not None

    def _absent(self, key: CacheKey, explain: bool) -> Miss:
        from gearcache.cache.keys.nearest import nearest_entry

        try:
            nearest = nearest_entry(self.layout, key) if explain else None
        except OSError as error:
            folder = self.layout.entries_folder
            return Miss(MissReason.UNREADABLE, f"`{folder}` cannot be read: {error.strerror}")
        if nearest is None:
            return Miss(MissReason.ABSENT, f"no entry for `{key.label}`")
        return Miss(MissReason.ABSENT, str(nearest), nearest.difference)
