"""Sign manifests with a secret: a manifest names its blobs by digest, so its signature covers the whole entry."""

from __future__ import annotations

from pathlib import Path

from gearcache.cache.signatures.trailer import HMAC_SIZE
from gearcache.errors import UnsafePath

KEY_FILE_VARIABLE = "GEARCACHE_HMAC_KEY_FILE"
MIN_KEY_SIZE = 16
MAX_KEY_SIZE = 4096


class Signer:
    """HMAC-SHA256 with the bytes of a file, without the line ends after them; read at the first use and kept.

    `UnsafePath` when the file cannot be read, is too short, or may be read or written by others: without its key
    a cache is not used at all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key: bytes | None = None

    def signature(self, data: bytes) -> bytes:
        """Return the 32 bytes to append to `data`, which may end with a key-pair signature."""
        # Imported here: most caches are not signed.
        from hmac import digest

        return digest(self._secret(), data, "sha256")

    def has_signed(self, data: bytes) -> bool:
        """Whether `data` ends with its signature."""
        from hmac import compare_digest

        rest = memoryview(data)
        body, actual_signature = rest[:-HMAC_SIZE], rest[-HMAC_SIZE:]
        return compare_digest(self.signature(bytes(body)), bytes(actual_signature))

    def _secret(self) -> bytes:
        if self._key is None:
            self._key = _read_key(self.path)
        return self._key


def _read_key(path: Path) -> bytes:
    # Imported here: most caches are not signed.
    from gearcache.cache.files.named_file import read_secret

    remedy = f"give `{KEY_FILE_VARIABLE}` a file of {MIN_KEY_SIZE} to {MAX_KEY_SIZE} random bytes, mode 0600"

    def parse(data: bytes) -> bytes:
        key = data.rstrip(b"\r\n")
        if not MIN_KEY_SIZE <= len(key) <= MAX_KEY_SIZE:
            raise UnsafePath(path, f"the key has {len(key)} bytes", remedy)
        return key

    return read_secret(path, MAX_KEY_SIZE + 2, remedy, parse)
