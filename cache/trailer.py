"""What follows the body of a manifest: nothing, a signature by key pair, an HMAC, or both in this order.

A signature by key pair is ``magic, public key, Ed25519 signature`` of what is before it; the HMAC, 32 bytes without a
magic, covers all before it, the other signature too.
"""

from __future__ import annotations

HMAC_SIZE = 32
PUBLIC_KEY_SIZE = 32
SIGNATURE_SIZE = 64

_MAGIC = b"\0Ed25519"
_PAIR_SIZE = len(_MAGIC) + PUBLIC_KEY_SIZE + SIGNATURE_SIZE
_SIZES = (0, HMAC_SIZE, _PAIR_SIZE, _PAIR_SIZE + HMAC_SIZE)


class Signed:
    """A manifest apart from its signatures; those that it lacks are empty.

    `manifest` is what is signed: header and body. No named tuple: every relaunch imports this,
    and one takes longer to define than the rest of the module.
    """

    __slots__ = ("hmac", "manifest", "public_key", "signature")

    def __init__(self, manifest: bytes, public_key: bytes, signature: bytes, hmac: bytes) -> None:
        self.manifest = manifest
        self.public_key = public_key
        self.signature = signature
        self.hmac = hmac

    @property
    def pair(self) -> bytes:
        """The bytes of the signature by key pair, as they lie behind the manifest."""
        return pair_trailer(self.public_key, self.signature) if self.public_key else b""


def pair_trailer(public_key: bytes, signature: bytes) -> bytes:
    """Return what is put behind a manifest that was signed with a key pair."""
    if len(public_key) != PUBLIC_KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        raise ValueError(f"a key of {len(public_key)} bytes and a signature of {len(signature)}")
    return _MAGIC + public_key + signature


def is_trailer(data: bytes | memoryview, start: int) -> bool:
    """Whether what begins at `start` is one of the four that may follow a body."""
    size = len(data) - start
    return size in _SIZES and (size < _PAIR_SIZE or data[start : start + len(_MAGIC)] == _MAGIC)


def split(data: bytes, start: int) -> Signed:
    """Take a manifest apart whose body ends at `start`; `ValueError` where no trailer begins there."""
    if not is_trailer(data, start):
        raise ValueError(f"{len(data) - start} bytes follow, which are not a signature")
    manifest, at = data[:start], start
    public_key = signature = b""
    if len(data) - start >= _PAIR_SIZE:
        at += len(_MAGIC) + PUBLIC_KEY_SIZE
        public_key, signature = data[at - PUBLIC_KEY_SIZE : at], data[at : at + SIGNATURE_SIZE]
        at += SIGNATURE_SIZE
    return Signed(manifest, public_key, signature, data[at:])
