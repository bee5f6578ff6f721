"""Keys for tests: private ones in files, public ones as this host would trust them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gearcache.cache.manifest import encode_manifest
from gearcache.cache.remote.trust import Trust
from gearcache.cache.signatures.key_pair import SigningKey, new_key_file
from gearcache.cache.signatures.signature import Signer
from gearcache.cache.signatures.trusted_keys import TrustedKey
from tests.cache.test_manifest import SAMPLE

CREATED = 1_800_000_000.0


class Pair:
    """A key pair: its file, the private key, and the public one."""

    def __init__(self, folder: Path, name: str = "build") -> None:
        self.path = folder / f"{name}.pem"
        self.trusted = TrustedKey(name, new_key_file(self.path))
        self.private = SigningKey(self.path)

    @property
    def signs(self) -> Trust:
        """A host that signs with it."""
        return Trust(signing_key=self.private)

    @property
    def checks(self) -> Trust:
        """A host that trusts it."""
        return Trust([self.trusted])


def hmac_key(folder: Path, name: str = "secret") -> Path:
    """The file of a new HMAC key, which its name decides."""
    path = folder / name
    path.write_bytes(name.encode().ljust(32, b"."))
    path.chmod(0o600)
    return path


def signer(folder: Path, name: str = "secret") -> Signer:
    """What signs with such a key."""
    return Signer(hmac_key(folder, name))


def manifest(number: int = 1, created: float = CREATED) -> bytes:
    """The bytes of an unsigned manifest; those of another number differ."""
    return encode_manifest(replace(SAMPLE, payload={"number": number}, created=created))


def hide_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it look as if `cryptography` were not installed."""
    names = [name for name in sys.modules if name.partition(".")[0] == "cryptography"]
    for name in {*names, "cryptography", "cryptography.hazmat.primitives.asymmetric", "cryptography.exceptions"}:
        monkeypatch.setitem(sys.modules, name, None)
