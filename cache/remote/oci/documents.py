"""The JSON documents of an image: descriptors, manifests, indexes, configs; read with all checks, written one way only.

Manifests of OCI and of Docker (version 2, schema 2) differ in the names of types alone. Both are read, OCI is written.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gearcache.cache.remote.oci.digest import digest_of as digest_of
from gearcache.cache.remote.oci.digest import is_image_digest as is_image_digest

#: Registries take manifests of at most 4 MiB; configs of ours are far smaller.
MAX_DOCUMENT_SIZE = 4 << 20
#: Bytes of a layer, as it is carried.
MAX_LAYER_SIZE = 16 << 30

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
#: What the extractors of KServe take, and image volumes: an ordinary layer, compressed by gzip.
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"

MANIFEST_TYPES = (MANIFEST_TYPE, "application/vnd.docker.distribution.manifest.v2+json")
INDEX_TYPES = (INDEX_TYPE, "application/vnd.docker.distribution.manifest.list.v2+json")
_CONFIG_TYPES = (CONFIG_TYPE, "application/vnd.docker.container.image.v1+json")
_LAYER_TYPES = (LAYER_TYPE, "application/vnd.docker.image.rootfs.diff.tar.gzip")
_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64"}


class ImageError(ValueError):
    """What is no image, or none of ours; the text says why."""


@dataclass(frozen=True)
class Descriptor:
    """Type, sha256 (`sha256:<64 hex>`) and size in bytes of something that an image names."""

    media_type: str
    digest: str
    size: int

    def plain(self) -> dict[str, object]:
        """Return it as JSON data."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Config:
    """What an image says of itself: the sha256 of its one layer without compression, and its labels."""

    diff_id: str
    labels: dict[str, str]


def encode(document: Mapping[str, object]) -> bytes:
    """Return the bytes of a document, the same for the same content."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def describe(media_type: str, data: bytes) -> Descriptor:
    """Return the descriptor of some bytes."""
    return Descriptor(media_type, digest_of(data), len(data))


def architecture_of(machine: str) -> str:
    """Return what images call a machine that `platform.machine` names."""
    return _ARCHITECTURES.get(machine, machine)


def verified(data: bytes, descriptor: Descriptor) -> bytes:
    """Return some bytes; `ImageError` where they are not those of the descriptor."""
    if len(data) != descriptor.size or digest_of(data) != descriptor.digest:
        raise ImageError(f"it gives other bytes for {descriptor.digest}")
    return data


def media_type_of(data: bytes) -> str:
    """Return the type that a manifest or index says it has; an older one may say none."""
    found = _document(data)
    default = INDEX_TYPE if "manifests" in found else MANIFEST_TYPE
    return str(found.get("mediaType", default))


def read_manifest(data: bytes) -> tuple[Descriptor, Descriptor]:
    """Return the descriptors of the config and of the one layer of an image; `ImageError` for any other document."""
    found = _document(data)
    _check_type(found.get("mediaType", MANIFEST_TYPE), MANIFEST_TYPES, "manifest")
    layers = found.get("layers")
    if not isinstance(layers, list) or len(layers) != 1:
        number = len(layers) if isinstance(layers, list) else "no"
        raise ImageError(f"it has {number} layers; an image that `gearcache pack` makes has one")
    config, layer = _descriptor(found.get("config")), _descriptor(layers[0])
    _check_type(config.media_type, _CONFIG_TYPES, "config")
    _check_type(layer.media_type, _LAYER_TYPES, "layer")
    if config.size > MAX_DOCUMENT_SIZE or layer.size > MAX_LAYER_SIZE:
        raise ImageError(f"its config has {config.size} bytes and its layer {layer.size}, more than is read")
    return config, layer


def read_index(data: bytes) -> Descriptor:
    """Return the one manifest that an index has for this machine; `ImageError` where there are none or several.

    Attestations, which builders put beside an image, are of no platform and do not count.
    """
    found = _document(data)
    _check_type(found.get("mediaType", INDEX_TYPE), INDEX_TYPES, "index")
    listed = found.get("manifests")
    if not isinstance(listed, list):
        raise ImageError("its index names no manifests")
    images = [item for item in listed if isinstance(item, dict) and _platform(item) != ("unknown", "unknown")]
    if len(images) > 1:
        images = [item for item in images if _platform(item) == ("linux", architecture_of(platform.machine()))]
    if len(images) != 1:
        raise ImageError(f"its index of {len(listed)} manifests has {len(images)} for this machine, instead of one")
    descriptor = _descriptor(images[0])
    _check_type(descriptor.media_type, MANIFEST_TYPES, "manifest")
    return descriptor


def read_config(data: bytes) -> Config:
    """Return what a config says; `ImageError` where it is none of an image with one layer."""
    found = _document(data)
    rootfs, config = found.get("rootfs"), found.get("config")
    ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(ids, list) or len(ids) != 1 or not isinstance(ids[0], str) or not is_image_digest(ids[0]):
        raise ImageError("its config does not name the content of one layer")
    labels = config.get("Labels") if isinstance(config, dict) else None
    texts = labels.items() if isinstance(labels, dict) else ()
    return Config(ids[0], {name: value for name, value in texts if isinstance(value, str)})


def _document(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImageError("a document of it is no JSON") from error
    if not isinstance(found, dict) or found.get("schemaVersion", 2) != 2:
        raise ImageError("a document of it is of another kind than is read")
    return found


def _descriptor(found: object) -> Descriptor:
    media_type, digest, size = (
        (found.get(name) for name in ("mediaType", "digest", "size")) if isinstance(found, dict) else (None,) * 3
    )
    if type(media_type) is not str or type(digest) is not str or type(size) is not int:
        raise ImageError("it names something without a type, a digest and a size")
    if size < 0 or not is_image_digest(digest):
        raise ImageError(f"it names `{digest[:100]}` of {size} bytes, where a sha256 belongs")
    return Descriptor(media_type, digest, size)


def _check_type(found: object, allowed: tuple[str, ...], what: str) -> None:
    if found not in allowed:
        raise ImageError(f"its {what} is of the type `{str(found)[:100]}`; it must be {' or '.join(allowed)}")


def _platform(item: dict[str, Any]) -> tuple[str, str]:
    found = item.get("platform")
    return (str(found.get("os")), str(found.get("architecture"))) if isinstance(found, dict) else ("", "")
