"""Sign manifests with an Ed25519 key pair: a host that only checks cannot sign. Imports `cryptography` at first use."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gearcache.cache.files.atomic import write_new
from gearcache.cache.files.named_file import read_secret
from gearcache.cache.files.parent_folders import check_parents
from gearcache.cache.signatures.trailer import pair_trailer
from gearcache.errors import CacheError, UnsafePath

if TYPE_CHECKING:
    from types import ModuleType

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNING_KEY_VARIABLE = "GEARCACHE_SIGNING_KEY_FILE"
MISSING_PACKAGE = "keys need the package `cryptography`: `pip install 'gearcache[keys]'`"
#: Prefix of the signed bytes, so that a signature made for another use of a key is never valid for a manifest.
_DOMAIN = b"gearcache manifest, Ed25519\0"
_MAX_FILE_SIZE = 4096
_FINGERPRINT_BYTES = 8


class SigningKey:
    """The private key of a host that compiles, a PEM file (PKCS8) without a password; read at the first use and kept.

    `UnsafePath` when the file cannot be read, holds a different kind of key, or may be read or written by others;
    `CacheError` without the package `cryptography`. A host that has it publishes nothing unsigned.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key: Ed25519PrivateKey | None = None

    @property
    def public_key(self) -> bytes:
        """Return the 32 bytes by which other hosts know this key."""
        return self._private().public_key().public_bytes_raw()

    def trailer(self, manifest: bytes) -> bytes:
        """Return the bytes to append after the header and body of a manifest."""
        return pair_trailer(self.public_key, self._private().sign(_DOMAIN + manifest))

    def _private(self) -> Ed25519PrivateKey:
        if self._key is None:
            self._key = _read_private_key(self.path)
        return self._key


def has_signed(public_key: bytes, signature: bytes, manifest: bytes) -> bool:
    """Whether a signature is one of header and body by a key; `CacheError` without the package `cryptography`."""
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _DOMAIN + manifest)
    except (InvalidSignature, ValueError):
        return False
    except UnsupportedAlgorithm as error:  # an OpenSSL that was built or configured without it
        raise CacheError("the OpenSSL of the package `cryptography` has no Ed25519 here") from error
    return True


def fingerprint(public_key: bytes) -> str:
    """Return the text by which people distinguish public keys: the start of the sha256."""
    return sha256(public_key).digest()[:_FINGERPRINT_BYTES].hex()


def new_key_file(path: Path) -> bytes:
    """Write a new private key, mode 0600, and return its public key.

    Never overwrites: `FileExistsError`. `UnsafePath` where other users may replace the file; `OSError`, and
    `CacheError` without the package `cryptography`.
    """
    key = _ed25519().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    check_parents(path)
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_new(path, data)
    return bytes(key.public_key().public_bytes_raw())


def _read_private_key(path: Path) -> Ed25519PrivateKey:
    ed25519 = _ed25519()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    remedy = f"give `{SIGNING_KEY_VARIABLE}` a file that `gearcache keys new` has written, mode 0600"

    def parse(data: bytes) -> Ed25519PrivateKey:
        try:
            key = load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            # Not the error's own text: it may show secret parts of the file.
            raise UnsafePath(path, "it holds no private key in PEM without a password", remedy) from error
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise UnsafePath(path, "it holds a private key of another kind than Ed25519", remedy)
        return cast("Ed25519PrivateKey", key)

    return read_secret(path, _MAX_FILE_SIZE, remedy, parse)


def _ed25519() -> ModuleType:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise CacheError(MISSING_PACKAGE) from error
    return ed25519
