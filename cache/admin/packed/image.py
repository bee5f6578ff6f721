"""Write an image to a folder in the OCI image layout: `oci-layout`, `index.json`, `blobs/sha256/<digest>`."""

from __future__ import annotations

import gzip
import json
import os
import platform
import tarfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from msgspec import Struct

from gearcache.cache.admin.packed.archive import add_file
from gearcache.cache.admin.packed.packing import Member, Packed, Packing, Sign, as_it_is, packing
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.files.atomic import TEMPORARY_PREFIX, move_aside, open_atomic, write_atomic
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import ROOT_VARIABLE, Layout
from gearcache.errors import CacheError

#: The folder of the cache in a layer: a container of this image, or one that mounts it at `/`, finds the cache there.
ROOT = "var/cache/gearcache"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
#: An ordinary layer, compressed by gzip: what KServe's extractors and image volumes accept.
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64"}
_MARK = "oci-layout"
_INDEX = "index.json"
_CREATED = "1970-01-01T00:00:00Z"
_COMPRESSION_LEVEL = 6


class _Part(Struct, frozen=True):
    """Type, sha256 in hex and size in bytes of a part of an image."""

    media_type: str
    digest: str
    size: int

    def to_plain(self) -> dict[str, object]:
        """Return what a document says of it."""
        return {"mediaType": self.media_type, "digest": f"sha256:{self.digest}", "size": self.size}


class _Digesting:
    """A file that counts and digests the bytes written to it."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.state = sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.state.update(data)
        self.size += len(data)
        self._target.write(data)
        return len(data)

    def tell(self) -> int:
        return self.size


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
            layer, plain_digest = _write_layer(file, packed.members())
        move_aside(unfinished_path, _path(folder, layer))
    finally:
        unfinished_path.unlink(missing_ok=True)
    machine = _machine(packed)
    config = _write_document(folder, _CONFIG_TYPE, _config(plain_digest, machine))
    parts = {"config": config.to_plain(), "layers": [layer.to_plain()]}
    manifest = _write_document(folder, _MANIFEST_TYPE, {"schemaVersion": 2, "mediaType": _MANIFEST_TYPE, **parts})
    index_item = {
        **manifest.to_plain(),
        "platform": {"architecture": machine, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": "latest"},  # some tools take images by name only
    }
    write_atomic(folder / _MARK, _encoded({"imageLayoutVersion": "1.0.0"}))
    write_atomic(folder / _INDEX, _encoded({"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [index_item]}))
    return packed.summary(f"sha256:{manifest.digest}")


def _write_layer(target: BinaryIO, members: Iterable[Member]) -> tuple[_Part, str]:
    """Write files, and the folders above them, in the order of their names; also returns the digest of the plain tar.

    All files belong to root, are writable only by root, and have no time. Errors of a member's `open` are passed on.
    """
    packed = _Digesting(target)
    folders: set[PurePosixPath] = set()
    with gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, cast(BinaryIO, packed), mtime=0) as compressed:
        plain = _Digesting(cast(BinaryIO, compressed))
        with tarfile.open(fileobj=cast(BinaryIO, plain), mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add_folders(tar, PurePosixPath(ROOT, "any"), folders)
            for member in sorted(members, key=lambda member: member.name):
                path = PurePosixPath(ROOT, member.name)
                _add_folders(tar, path, folders)
                with member.open() as file:
                    add_file(tar, str(path), file, member.size, 0o644)
    return _Part(_LAYER_TYPE, packed.state.hexdigest(), packed.size), plain.state.hexdigest()


def _add_folders(tar: tarfile.TarFile, path: PurePosixPath, present_folders: set[PurePosixPath]) -> None:
    for folder in reversed(path.parents[:-1]):
        if folder not in present_folders:
            present_folders.add(folder)
            entry = tarfile.TarInfo(str(folder))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)


def _write_document(folder: Path, media_type: str, document: Mapping[str, object]) -> _Part:
    data = _encoded(document)
    part = _Part(media_type, sha256(data).hexdigest(), len(data))
    write_atomic(_path(folder, part), data)
    return part


def _encoded(document: Mapping[str, object]) -> bytes:
    """Return the bytes of a document, the same for the same content."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _config(layer_digest: str, machine: str) -> dict[str, object]:
    # Not the version of gearcache, and the same time as Jib and Bazel: otherwise equal content would have different
    # digests. The labels are those that Red Hat's Model Cache Vault writes for KServe.
    labels = {
        "io.kserve.km/cache-type": "gearcache",
        "io.kserve.km/framework": "torch",
        "io.kserve.km/cache-root-env": f"{ROOT_VARIABLE}=/{ROOT}",
        "io.kserve.km/cache-mount-subpath": ROOT,
        "io.kserve.km/cache-hash": layer_digest,
        "io.gearcache.cache/format": str(FORMAT_VERSION),
    }
    return {
        "created": _CREATED,
        "architecture": machine,
        "os": "linux",
        "config": {"Env": [f"{ROOT_VARIABLE}=/{ROOT}"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
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
            machines.add(_ARCHITECTURES.get(machine, machine))
    if len(machines) > 1:
        raise CacheError(f"the entries are for {' and '.join(sorted(machines))}; an image is for one kind of machine")
    machine = platform.machine()
    return machines.pop() if machines else _ARCHITECTURES.get(machine, machine)


def _path(folder: Path, part: _Part) -> Path:
    return folder / "blobs" / "sha256" / part.digest
