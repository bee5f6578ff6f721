"""The JSON documents of an image, written so that the same content gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from msgspec import Struct

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
#: An ordinary layer, compressed by gzip: what KServe's extractors and image volumes accept.
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"

_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64"}


class Descriptor(Struct, frozen=True):
    """Type, sha256 (`sha256:<64 hex>`) and size in bytes of something that an image names."""

    media_type: str
    digest: str
    size: int

    def plain(self) -> dict[str, object]:
        """Return it as JSON data."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


def encode(document: Mapping[str, object]) -> bytes:
    """Return the bytes of a document, the same for the same content."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def describe(media_type: str, data: bytes) -> Descriptor:
    """Return the descriptor of some bytes."""
    return Descriptor(media_type, f"sha256:{sha256(data).hexdigest()}", len(data))


def architecture_of(machine: str) -> str:
    """Return the name that images use for a machine that `platform.machine` names."""
    return _ARCHITECTURES.get(machine, machine)
