"""An image in a folder: the same for the same entries, what it holds, and that it is a cache where it is mounted."""

from __future__ import annotations

import gzip
import json
import os
import random
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.packed.image import ROOT, write_image
from gearcache.cache.admin.verify import verify
from gearcache.cache.keys.key import FORMAT_VERSION, CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.signatures.signature import Signer
from gearcache.cache.store import DiskStore, Hit
from gearcache.errors import CacheError, CorruptEntry
from tests.support.signing import signer

VERSIONS = {"torch": "2.13.0", "machine": "x86_64"}
KEYS = [
    CacheKey("Model.decode", (("versions", VERSIONS), ("backend", {"capability": "AVX512"}), ("a", number)))
    for number in range(3)
]
CODE = random.Random(1).randbytes(3000)
PRODUCER = {"torch": "2.13.0", "gears": ["x.size(0)=1", "x.size(0)=2"]}


def fill(root: Path, *, keys: list[CacheKey] = KEYS, signer: Signer | None = None) -> Layout:
    layout = Layout(root)
    store = DiskStore(layout, clock=lambda: 1.5, signer=signer)
    for key in keys:
        with store.writing():
            sizes = {store.put_blob(data): len(data) for data in (CODE, key.digest.encode())}
            store.publish(key, {"method": key.label}, sizes, PRODUCER)
    return layout


def pack(layout: Layout, folder: Path) -> str:
    return write_image(layout, Catalog(layout).entries(), folder).digest


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def document(folder: Path, digest: str) -> Any:
    return json.loads((folder / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes())


def named(folder: Path) -> str:
    """The digest of the manifest that the index names."""
    (listed,) = json.loads((folder / "index.json").read_bytes())["manifests"]
    return str(listed["digest"])


def assert_whole(folder: Path) -> None:
    """Each part of the image is there with the digest that names it."""
    manifest = document(folder, named(folder))
    for part in (named(folder), manifest["config"]["digest"], manifest["layers"][0]["digest"]):
        data = (folder / "blobs" / "sha256" / part.removeprefix("sha256:")).read_bytes()
        assert f"sha256:{sha256(data).hexdigest()}" == part


def parts(folder: Path) -> tuple[Any, Any, Path]:
    """Manifest, config, and the file of the layer."""
    manifest = document(folder, named(folder))
    layer = folder / "blobs" / "sha256" / manifest["layers"][0]["digest"].removeprefix("sha256:")
    return manifest, document(folder, manifest["config"]["digest"]), layer


def test_the_same_entries_give_the_same_image_whatever_time_mask_and_order(tmp_path: Path) -> None:
    first = fill(tmp_path / "first")
    pack(first, tmp_path / "one")
    old = os.umask(0o077)
    try:
        second = fill(tmp_path / "second", keys=KEYS[::-1])
        for path in (tmp_path / "second").rglob("*"):
            os.utime(path, (1e9, 1e9))
        DiskStore(second).use(KEYS[0])
        (second.quarantine_folder / "damaged").write_bytes(b"x")
        pack(second, tmp_path / "two")
    finally:
        os.umask(old)
    assert files_below(tmp_path / "one") == files_below(tmp_path / "two")
    assert len(files_below(tmp_path / "one")) == 5
    other = pack(fill(tmp_path / "other", keys=KEYS[:2]), tmp_path / "one")
    assert named(tmp_path / "one") == other != named(tmp_path / "two"), "another image takes its place"
    assert_whole(tmp_path / "one")


def test_what_is_unpacked_is_a_read_only_cache_with_its_signatures(tmp_path: Path) -> None:
    signed_by = signer(tmp_path)
    pack(fill(tmp_path / "cache", signer=signed_by), tmp_path / "image")
    with tarfile.open(parts(tmp_path / "image")[2]) as tar:
        members = tar.getmembers()
        tar.extractall(tmp_path / "container", filter="data")
    files = [member.name for member in members if member.isreg()]
    assert len(files) == 7, "three entries, their blobs and the one that they share"
    assert files == sorted(files), "blobs come before the manifests that name them"
    for member in members:
        assert (member.uid, member.gid, member.mtime) == (0, 0, 0)
        assert (member.isdir(), member.mode) in ((True, 0o755), (False, 0o644))
    mounted = Layout(tmp_path / "container" / ROOT)
    for path in mounted.root.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    store = DiskStore(mounted, signer=signed_by)
    for key in KEYS:
        found = store.load(key)
        assert isinstance(found, Hit)
        assert all(store.read_blob(digest) for digest in found.manifest.blobs)
    assert verify(mounted).faults == []


def test_manifest_config_and_index_are_those_of_an_image(tmp_path: Path) -> None:
    layout = fill(tmp_path / "cache")
    made = write_image(layout, Catalog(layout).entries(), tmp_path / "image")
    manifest, config, layer = parts(tmp_path / "image")
    assert json.loads((tmp_path / "image" / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (listed,) = json.loads((tmp_path / "image" / "index.json").read_text())["manifests"]
    assert listed["digest"] == made.digest
    assert listed["platform"] == {"architecture": "amd64", "os": "linux"}
    assert listed["annotations"] == {"org.opencontainers.image.ref.name": "latest"}
    assert (manifest["schemaVersion"], manifest["mediaType"]) == (2, "application/vnd.oci.image.manifest.v1+json")
    (described,) = manifest["layers"]
    assert described["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert described["size"] == layer.stat().st_size
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    assert config["rootfs"]["diff_ids"] == [f"sha256:{sha256(gzip.decompress(layer.read_bytes())).hexdigest()}"]
    assert config["created"] == "1970-01-01T00:00:00Z"
    assert config["history"] == [{"created": config["created"], "created_by": "gearcache pack"}]
    assert (sorted(made.entries), made.blobs, made.size) == (sorted(key.name for key in KEYS), 4, 3000 + 3 * 64)


def test_labels_are_those_of_kserve_and_ours(tmp_path: Path) -> None:
    pack(fill(tmp_path / "cache"), tmp_path / "image")
    _, config, _ = parts(tmp_path / "image")
    labels = config["config"]["Labels"]
    assert {name: value for name, value in labels.items() if name.startswith("io.kserve.km/")} == {
        "io.kserve.km/cache-type": "gearcache",
        "io.kserve.km/framework": "torch",
        "io.kserve.km/cache-root-env": "TORCHAIR_CACHE_HOME=/var/cache/gearcache",
        "io.kserve.km/cache-mount-subpath": "var/cache/gearcache",
        "io.kserve.km/cache-hash": config["rootfs"]["diff_ids"][0].removeprefix("sha256:"),
    }
    assert labels["io.gearcache.cache/format"] == str(FORMAT_VERSION)
    assert config["config"]["Env"] == ["TORCHAIR_CACHE_HOME=/var/cache/gearcache"]


def test_entries_for_two_kinds_of_machines_are_no_image(tmp_path: Path) -> None:
    other = CacheKey("Model.decode", (("versions", {"machine": "aarch64"}),))
    layout = fill(tmp_path / "cache", keys=[KEYS[0], other])
    with pytest.raises(CacheError, match="for amd64 and arm64; an image is for one kind of machine"):
        pack(layout, tmp_path / "image")
    assert not (tmp_path / "image" / "index.json").exists()


def test_a_damaged_entry_is_not_packed_and_an_old_image_stays(tmp_path: Path) -> None:
    layout, image = fill(tmp_path / "cache"), tmp_path / "image"
    entries = Catalog(layout).entries()
    write_image(layout, entries[:1], image)
    before = (image / "index.json").read_bytes()
    layout.blob(sha256(CODE).hexdigest()).write_bytes(CODE + b"!")
    with pytest.raises(CorruptEntry):
        write_image(layout, entries, image)
    assert (image / "index.json").read_bytes() == before
    assert_whole(image)
    assert not (image / ".layer").exists()
