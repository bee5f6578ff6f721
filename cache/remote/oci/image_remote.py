"""`oci://registry/repository:tag`: an image of `gearcache pack` or `push` as a tier; nothing is stored there.

The image is fetched once for a process, whole, and its layer kept in a temporary file, from which objects are read.
"""

from __future__ import annotations

import os
import threading
from contextlib import closing

from gearcache.cache.remote.oci.documents import (
    INDEX_TYPES,
    Descriptor,
    ImageError,
    media_type_of,
    read_config,
    read_index,
    read_manifest,
    verified,
)
from gearcache.cache.remote.oci.reference import parse_reference
from gearcache.cache.remote.oci.registry import Registry
from gearcache.cache.remote.oci.session import with_registry
from gearcache.cache.remote.oci.unpacked import UnpackedLayer, unpack_layer
from gearcache.cache.remote.protocol import Creates, Deadline, RemoteError, check_name, is_name


class OciRemote:
    """An image. A tag that moves is not followed by a process that has fetched it; a fetch that failed is tried again.

    `ValueError` for what is no reference of an image. `insecure` as for `parse_reference`.
    """

    creates: Creates = "no"

    def __init__(self, url: str, insecure: bool | None = None) -> None:
        self._reference = parse_reference(url, insecure)
        self.label = self._reference.label
        self._layer: UnpackedLayer | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        check_name(self.label, name)
        layer = self._fetched(deadline)
        size = layer.size(name)
        if size is None:
            return None
        if size > limit:
            raise RemoteError(self.label, f"`{name}` has more than {limit} bytes")
        try:
            return layer.read(name)
        except OSError as error:
            raise RemoteError(self.label, f"`{name}`: {error.strerror or error}") from error

    def size(self, name: str, deadline: Deadline) -> int | None:
        check_name(self.label, name)
        return self._fetched(deadline).size(name)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        raise RemoteError(self.label, "it is read only")

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        check_name(self.label, prefix.removesuffix("/"))
        return [name for name in self._fetched(deadline).names(prefix) if is_name(name)][:limit]

    def delete(self, name: str, deadline: Deadline) -> None:
        raise RemoteError(self.label, "it is read only")

    def _fetched(self, deadline: Deadline) -> UnpackedLayer:
        left = deadline.check(self.label)
        if self._layer is not None:
            return self._layer
        if self._process != os.getpid():  # forked while a thread held the lock, which is not here to release it
            self._lock, self._process = threading.Lock(), os.getpid()
        if not self._lock.acquire(timeout=left):
            raise RemoteError(self.label, f"another thread did not fetch it within {left:.1f} s")
        try:
            if self._layer is None:
                self._layer = with_registry(self._reference, deadline, lambda registry: self._fetch(registry, deadline))
            return self._layer
        finally:
            self._lock.release()

    def _fetch(self, registry: Registry, deadline: Deadline) -> UnpackedLayer:
        config, layer = read_manifest(self._manifest(registry))
        diff_id = read_config(verified(registry.document(config), config)).diff_id
        with closing(registry.blob(layer)) as pieces:
            return unpack_layer(pieces, layer, diff_id, check=lambda: deadline.check(self.label))

    def _manifest(self, registry: Registry) -> bytes:
        """The manifest of the image, found through an index where there is one."""
        name = self._reference.name
        data = registry.manifest(name)
        if data is None:
            raise ImageError("there is no such image")
        if self._reference.is_digest:
            verified(data, Descriptor("", name, len(data)))
        if media_type_of(data) not in INDEX_TYPES:
            return data
        found = read_index(data)
        inner = registry.manifest(found.digest)
        if inner is None:
            raise ImageError(f"it lacks {found.digest}, which its index names")
        return verified(inner, found)
