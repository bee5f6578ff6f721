"""Read a manifest from disk: only a file that no other user could write, whole, sound, and signed if required."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gearcache.cache.files.trust import read_trusted
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, decode_manifest
from gearcache.errors import CacheError, CorruptEntry, UnsignedEntry

if TYPE_CHECKING:
    from gearcache.cache.signatures.signature import Signer


def read_manifest(path: Path, key_digest: str, signer: Signer | None = None) -> Manifest:
    """Return the manifest at a path.

    Raises `CorruptEntry` (also when it belongs to another key), `OtherFormat`, `UnsafePath`, `UnsignedEntry` or
    `OSError`.
    """
    data = read_trusted(path, MAX_MANIFEST_SIZE)
    manifest = decode_manifest(data, path)
    if manifest.key_digest != key_digest:
        raise CorruptEntry(path, f"it belongs to the key {manifest.key_digest}")
    if signer is not None and not signer.has_signed(data):
        from gearcache.cache.signatures.signature import KEY_FILE_VARIABLE

        remedy = "let it be compiled again, or import a bundle that was exported with this key"
        raise UnsignedEntry(path, f"it is not signed with the key of `{KEY_FILE_VARIABLE}`", remedy)
    return manifest


def read_manifest_to_copy(path: Path) -> tuple[bytes, Manifest]:
    """Return a manifest as bytes and decoded; raises a `CacheError` where it is unreadable or not sound."""
    try:
        data = read_trusted(path, MAX_MANIFEST_SIZE)
    except OSError as error:
        raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error
    return data, decode_manifest(data, path)
