"""What a manifest that comes from a tier must carry (to be replaced by the helper's)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gearcache.cache.signature import KEY_FILE_VARIABLE, Signer
from gearcache.errors import UnsignedEntry


class Trust:
    """What a manifest that comes from a tier must carry."""

    def __init__(self, signer: Signer | None) -> None:
        self._signer = signer

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Trust:
        """Return what the environment asks for."""
        path = environ.get(KEY_FILE_VARIABLE)
        return cls(Signer(Path(path)) if path else None)

    def check(self, data: bytes, source: str, *, unsigned: bool = False) -> str:
        """Return who signed; raises `UnsignedEntry`."""
        if self._signer is not None and self._signer.has_signed(data):
            return "hmac"
        if unsigned and self._signer is None:
            return ""
        raise UnsignedEntry(Path(source), "it is not signed", "say `?unsigned=1`")

    def signed(self, data: bytes) -> bytes:
        """Return the manifest with the signatures of this host."""
        return data
