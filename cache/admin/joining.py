"""Join entries that arrive from other hosts into the cache of this host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gearcache.cache.admin.row import Identity
from gearcache.cache.blob_folder import present_size
from gearcache.cache.entry_file import entry_bytes, write_entry
from gearcache.cache.files.trust import read_trusted
from gearcache.cache.layout import MANIFEST_NAME, Layout
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, OtherFormat, read_manifest
from gearcache.cache.remote.trust import Trust
from gearcache.cache.signatures.signature import Signer
from gearcache.errors import CacheError, CorruptEntry, UnsignedEntry

#: Seconds that a command waits for a process of this host that compiles the same.
LOCK_SECONDS = 60.0
#: See `gearcache.readable.joined`, which knows what a payload holds.
Join = Callable[["Manifest | None", Sequence[Manifest], Callable[[str, int], bool]], "Manifest | None"]


def own_entry(layout: Layout, identity: Identity, signer: Signer | None) -> tuple[Manifest | None, bytes]:
    """Return the manifest of this host and its bytes; None for an entry that a serving process would compile anew.

    Raises a `CacheError` where it cannot be read now, or is of another format: it may not be replaced.
    """
    path = layout.entry(*identity) / MANIFEST_NAME
    try:
        return read_manifest(path, identity[1], signer), read_trusted(path, MAX_MANIFEST_SIZE)
    except OtherFormat:
        raise
    except (FileNotFoundError, NotADirectoryError, CorruptEntry, UnsignedEntry):
        return None, b""
    except OSError as error:
        raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error


def join_entry(
    layout: Layout, identity: Identity, offers: Sequence[tuple[Manifest, bytes]], trust: Trust, join: Join
) -> tuple[Manifest | None, bool]:
    """Store what this host lacks of the offered manifests; returns the entry now, and whether it was written.

    The caller holds the lock of the key and shares that of the store. Raises what `own_entry` and `write_entry` do.
    """
    own_manifest, _ = own_entry(layout, identity, trust.hmac)
    manifest = join(own_manifest, [offered for offered, _ in offers], lambda *blob: is_here(layout, *blob))
    if manifest is None:
        return own_manifest, False
    # An unchanged manifest keeps the signature of its producer.
    unchanged_data = next((data for offered, data in offers if offered is manifest), None)
    path = layout.entry(*identity) / MANIFEST_NAME
    write_entry(layout, identity, manifest, unchanged_data or trust.signed(entry_bytes(manifest, path)))
    return manifest, True


def is_here(layout: Layout, digest: str, size: int) -> bool:
    """Whether a blob is stored in its size, unverified."""
    return present_size(layout.blob(digest)) == size
