"""Images of any objects, sound ones and hostile ones, for the tests of what reads them."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from gearcache.cache.remote.oci.documents import (
    CONFIG_TYPE,
    INDEX_TYPE,
    LAYER_TYPE,
    MANIFEST_TYPE,
    Descriptor,
    describe,
    digest_of,
    encode,
)
from gearcache.cache.remote.oci.layer import ROOT, Member, write_layer
from tests.cache.remote.registries import SmallRegistry


def packed(objects: Mapping[str, bytes]) -> tuple[bytes, str]:
    """A layer of objects, and the sha256 of its content."""
    file = io.BytesIO()
    members = [Member(name, len(data), partial(_open, data)) for name, data in objects.items()]
    layer = write_layer(file, members)
    return file.getvalue(), layer.diff_id


def _open(data: bytes) -> Any:
    return nullcontext(io.BytesIO(data))


def write_objects(folder: Path, objects: Mapping[str, bytes]) -> None:
    """An image of objects in a folder, as `write_image` writes one of entries."""
    layer, diff_id = packed(objects)
    config = encode(config_of(diff_id))
    manifest = encode(manifest_of(layer, config))
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for data in (layer, config, manifest):
        (blobs / digest_of(data)[7:]).write_bytes(data)
    found = describe(MANIFEST_TYPE, manifest).plain()
    (folder / "index.json").write_bytes(encode({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [found]}))


def config_of(diff_id: str) -> dict[str, Any]:
    """The smallest config of an image."""
    return {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff_id]}}


def manifest_of(layer: bytes, config: bytes) -> dict[str, Any]:
    """The manifest of an image."""
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": describe(CONFIG_TYPE, config).plain(),
        "layers": [describe(LAYER_TYPE, layer).plain()],
    }


def put_image(registry: SmallRegistry, layer: bytes, diff_id: str = "", **changes: Any) -> Descriptor:
    """Put an image of a layer into a registry as `latest`; `changes` are fields of its manifest."""
    config = encode(config_of(diff_id or digest_of(gzip.decompress(layer))))
    for data in (layer, config):
        registry.blobs[digest_of(data)] = data
    document = {**manifest_of(layer, config), **changes}
    return put_manifest(registry, document, document["mediaType"])


def put_manifest(registry: SmallRegistry, document: Mapping[str, Any], media_type: str) -> Descriptor:
    """Put a manifest or index into a registry as `latest`, and under its digest."""
    data = encode(document)
    for name in ("latest", digest_of(data)):
        registry.manifests[name] = (media_type, data)
    return describe(media_type, data)


def tar_of(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """A compressed tar of any members; the names are below the root of a cache, unless they begin with `!`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                name, data = member
                info = tarfile.TarInfo(name[1:] if name.startswith("!") else f"{ROOT}/{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return gzip.compress(file.getvalue(), mtime=0)


def special(kind: bytes, name: str = "v4/link", target: str = "") -> tarfile.TarInfo:
    """A member that is no file."""
    info = tarfile.TarInfo(f"{ROOT}/{name}")
    info.type, info.linkname = kind, target
    return info
