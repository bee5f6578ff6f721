"""Write an image to a folder in the OCI image layout: `oci-layout`, `index.json`, `blobs/sha256/<digest>`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from gearcache.cache.admin.packed.image.documents import (
    CONFIG_TYPE,
    INDEX_TYPE,
    MANIFEST_TYPE,
    Descriptor,
    architecture_of,
    describe,
    encode,
)
from gearcache.cache.admin.packed.image.layer import ROOT, Layer, write_layer
from gearcache.cache.admin.packed.packing import Packed, Packing, Sign, as_it_is, packing
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.files.atomic import TEMPORARY_PREFIX, move_aside, open_atomic, write_atomic
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import ROOT_VARIABLE, Layout
from gearcache.errors import CacheError

_MARK = "oci-layout"
_INDEX = "index.json"
_CREATED = "1970-01-01T00:00:00Z"


def write_image(layout: Layout, entries: Iterable[EntryRow], folder: Path, sign: Sign = as_it_is) -> Packed:
    """Write an image of entries, which stay in use meanwhile; every byte is verified while it is copied.

    `sign` may sign manifests; its errors are passed on.

    The same content gives the same digest. A folder that already holds an image keeps its blobs, and names only the new
    image. Raises `CacheError` when an entry or a blob is missing, damaged or untrusted, when the folder holds something
    else, or when it cannot be written. The folder then has the old image, or none.
    """
    try:
        if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).is_file():
            raise CacheError(f"`{folder}` holds something else than an image; name a new folder")
        (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        with packing(layout, entries, sign) as packed:
            return _write(packed, folder)
    except OSError as error:
        raise CacheError(f"`{folder}` cannot be written: {error.strerror or error}") from error


def _write(packed: Packing, folder: Path) -> Packed:
    # The digest is known at the end only; the name is of this process alone, as another may write the same image.
    unfinished_path = folder / f"{TEMPORARY_PREFIX}layer-{os.getpid()}-{os.urandom(8).hex()}"
    try:
        with open_atomic(unfinished_path) as file:
            layer = write_layer(file, packed.members())
        move_aside(unfinished_path, _path(folder, layer.descriptor))
    finally:
        unfinished_path.unlink(missing_ok=True)
    machine = _machine(packed)
    config = encode(_config(packed, layer, machine))
    manifest = encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": describe(CONFIG_TYPE, config).plain(),
            "layers": [layer.descriptor.plain()],
        }
    )
    for data in (config, manifest):
        write_atomic(_path(folder, describe("", data)), data)
    descriptor = describe(MANIFEST_TYPE, manifest)
    index_item = {
        **descriptor.plain(),
        "platform": {"architecture": machine, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": "latest"},  # some tools take images by name only
    }
    write_atomic(folder / _MARK, encode({"imageLayoutVersion": "1.0.0"}))
    write_atomic(folder / _INDEX, encode({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [index_item]}))
    return packed.summary(descriptor.digest)


def _config(packed: Packing, layer: Layer, machine: str) -> dict[str, object]:
    # Not the version of gearcache, and the same time as Jib and Bazel: otherwise equal content would have different
    # digests. The labels are those that Red Hat's Model Cache Vault writes for KServe.
    labels = {
        "io.kserve.km/cache-type": "gearcache",
        "io.kserve.km/framework": "torch",
        "io.kserve.km/cache-root-env": f"{ROOT_VARIABLE}=/{ROOT}",
        "io.kserve.km/cache-mount-subpath": ROOT,
        "io.kserve.km/cache-hash": layer.diff_id.partition(":")[2],
        "io.gearcache.cache/format": str(FORMAT_VERSION),
    }
    return {
        "created": _CREATED,
        "architecture": machine,
        "os": "linux",
        "config": {"Env": [f"{ROOT_VARIABLE}=/{ROOT}"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
        "history": [{"created": _CREATED, "created_by": "gearcache pack"}],
    }


def _machine(packed: Packing) -> str:
    """Return the machine of the entries; hosts refuse images of another one. Entries without one count as this
    one's.
    """
    machines = set[str]()
    for _, _, manifest in packed.manifests:
        versions = manifest.components.get("versions")
        if isinstance(versions, dict) and isinstance(machine := versions.get("machine"), str) and machine:
            machines.add(architecture_of(machine))
    if len(machines) > 1:
        raise CacheError(f"the entries are for {' and '.join(sorted(machines))}; an image is for one kind of machine")
    return machines.pop() if machines else architecture_of(platform.machine())


def _path(folder: Path, part: Descriptor) -> Path:
    return folder / "blobs" / "sha256" / part.digest.partition(":")[2]
