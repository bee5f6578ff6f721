"""Signing manifests with a secret: a manifest names its blobs by digest, so its signature covers an entry whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gearcache.cache.manifest import SIGNATURE_SIZE
from gearcache.cache.parents import TRUSTED_VARIABLE, check_parents
from gearcache.cache.trust import open_trusted
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
        """The 32 bytes to put behind `data`."""
        # Imported here: most caches are not signed.
        from hmac import digest

        return digest(self._secret(), data, "sha256")

    def has_signed(self, data: bytes) -> bool:
        """Whether `data` ends with its signature."""
        from hmac import compare_digest

        rest = memoryview(data)
        body, found = rest[:-SIGNATURE_SIZE], rest[-SIGNATURE_SIZE:]
        return compare_digest(self.signature(bytes(body)), bytes(found))

    def _secret(self) -> bytes:
        if self._key is None:
            self._key = _read_key(self.path)
        return self._key


def _read_key(path: Path) -> bytes:
    remedy = f"give `{KEY_FILE_VARIABLE}` a file of {MIN_KEY_SIZE} to {MAX_KEY_SIZE} random bytes, mode 0600"
    try:
        _check_above(path)
        # A mounted secret is often a link to the present version of it.
        real = path.resolve(strict=True)
        with open_trusted(real) as descriptor:
            state = os.fstat(descriptor)
            data = os.read(descriptor, MAX_KEY_SIZE + 3)
    except OSError as error:
        raise UnsafePath(path, f"the key cannot be read: {error.strerror}", remedy) from error
    # As ssh does: a file of root's may be readable by a group, which is how others get a mounted secret.
    readers = stat.S_IROTH | (stat.S_IRGRP if state.st_uid == os.geteuid() else 0)
    if state.st_mode & readers:
        mode = stat.S_IMODE(state.st_mode)
        raise UnsafePath(path, f"its mode {mode:04o} lets others read the key", f"run `chmod go-r {real}`")
    data = data.rstrip(b"\r\n")
    if not MIN_KEY_SIZE <= len(data) <= MAX_KEY_SIZE:
        raise UnsafePath(path, f"the key has {len(data)} bytes", remedy)
    return data


def _check_above(path: Path) -> None:
    """Refuse a key where others may rename beside it, or beside a link to it: they could put another one there."""
    try:
        check_parents(path)
    except UnsafePath as error:
        remedy = f"move the key to a folder that only you can write, or name that one in `{TRUSTED_VARIABLE}`"
        raise UnsafePath(path, f"others may change `{error.path}`, and so exchange the key", remedy) from error
