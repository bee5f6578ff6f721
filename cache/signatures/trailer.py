"""The bytes after the body of a manifest: nothing, a key-pair signature, an HMAC, or both in this order.

A key-pair signature is ``magic, public key, Ed25519 signature`` over everything before it. The HMAC, 32 bytes without a
magic, covers everything before it, including the other signature.
"""

from __future__ import annotations

from msgspec import Struct

HMAC_SIZE = 32
PUBLIC_KEY_SIZE = 32
SIGNATURE_SIZE = 64

_MAGIC = b"\0Ed25519"
_PAIR_SIZE = len(_MAGIC) + PUBLIC_KEY_SIZE + SIGNATURE_SIZE
_SIZES = (0, HMAC_SIZE, _PAIR_SIZE, _PAIR_SIZE + HMAC_SIZE)


class Signed(Struct, frozen=True):
    """The signatures of a manifest, empty where missing, and the signed bytes: its header and body."""

    manifest: bytes
    public_key: bytes
    signature: bytes
    hmac: bytes

    @property
    def pair(self) -> bytes:
        """Return the bytes of the key-pair signature, as stored after the manifest."""
        return pair_trailer(self.public_key, self.signature) if self.public_key else b""


def pair_trailer(public_key: bytes, signature: bytes) -> bytes:
    """Return the bytes to append to a manifest that was signed with a key pair."""
    if len(public_key) != PUBLIC_KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        raise ValueError(f"a key of {len(public_key)} bytes and a signature of {len(signature)}")
    return _MAGIC + public_key + signature


def is_trailer(data: bytes | memoryview, start: int) -> bool:
    """Return whether the bytes from `start` on are one of the four possible trailers of a body."""
    size = len(data) - start
    return size in _SIZES and (size < _PAIR_SIZE or data[start : start + len(_MAGIC)] == _MAGIC)


def split(data: bytes, start: int) -> Signed:
    """Split a manifest whose body ends at `start`; `ValueError` where no trailer begins there."""
    if not is_trailer(data, start):
        raise ValueError(f"{len(data) - start} bytes follow, which are not a signature")
    manifest, at = data[:start], start
    public_key = signature = b""
    if len(data) - start >= _PAIR_SIZE:
        at += len(_MAGIC) + PUBLIC_KEY_SIZE
        public_key, signature = data[at - PUBLIC_KEY_SIZE : at], data[at : at + SIGNATURE_SIZE]
        at += SIGNATURE_SIZE
    return Signed(manifest, public_key, signature, data[at:])
