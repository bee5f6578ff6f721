"""Write the manifest of an entry, for `publish` of a store and for commands that import entries."""

from __future__ import annotations

from pathlib import Path

from gearcache.cache.admin.row import Identity
from gearcache.cache.blob_folder import prepare_entry, present_size
from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.layout import MANIFEST_NAME, USE_NAME, Layout
from gearcache.cache.locks.use import register_use
from gearcache.cache.manifest import Manifest, encode_manifest
from gearcache.errors import PublishError


def entry_bytes(manifest: Manifest, path: Path) -> bytes:
    """Return a manifest without signatures; `PublishError` for what cannot be stored at `path`."""
    try:
        return encode_manifest(manifest)
    except (TypeError, ValueError) as error:
        raise PublishError(path, f"the entry cannot be stored: {error}") from error


def check_blobs(layout: Layout, manifest: Manifest, path: Path) -> None:
    """Raise `PublishError` unless all blobs of a manifest are stored in their sizes."""
    for digest, size in manifest.blobs.items():
        stored_size = present_size(layout.blob(digest))
        if stored_size != size:
            state = "is not stored" if stored_size is None else f"has {stored_size} bytes instead of {size}"
            raise PublishError(path, f"the blob {digest} {state}")


def write_entry(layout: Layout, identity: Identity, manifest: Manifest, data: bytes) -> None:
    """Store an entry whose blobs are stored, replacing an existing one; `PublishError` or `UnsafePath`.

    `data` is the manifest with its signatures. The caller holds the lock of its key and shares that of the store.
    """
    path = layout.entry(*identity) / MANIFEST_NAME
    check_blobs(layout, manifest, path)
    try:
        prepare_entry(layout, path.parent, manifest.blobs)
        # First, so that the entry never exists without being protected from eviction.
        use = register_use(path.with_name(USE_NAME), create=True)
        try:
            write_atomic(path, data)
        finally:
            if use is not None:
                use.close()
    except OSError as error:
        raise PublishError(path, error.strerror or type(error).__name__) from error
