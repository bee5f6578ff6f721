"""Bundles: entries carried from one cache to another, and what a hostile or damaged bundle cannot do."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec import msgpack
from msgspec.structs import asdict

from gearcache.cache import manifest as manifests
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.packed.bundle import HEADER_NAME, take_bundle, write_bundle
from gearcache.cache.admin.verify import verify
from gearcache.cache.files.parent_folders import TRUSTED_VARIABLE
from gearcache.cache.keys.key import FORMAT_VERSION, CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest
from gearcache.cache.remote.trust import Trust
from gearcache.cache.signatures.signature import Signer
from gearcache.cache.store import DiskStore, Hit
from gearcache.errors import BundleError, CacheError, CorruptEntry, UnsafePath
from gearcache.readable.joined import joined
from tests.cache.test_manifest import framed
from tests.support.signing import signer
from tests.support.stored_gears import store_gears, texts

KEYS = [CacheKey("Model.decode", (("a", number),)) for number in range(3)]
CODE = b"c" * 3000
DIGEST = sha256(CODE).hexdigest()


def fill(layout: Layout, signer: Signer | None = None, created: float = 1.0) -> None:
    store = DiskStore(layout, signer=signer, clock=lambda: created)
    for key in KEYS:
        with store.writing():
            sizes = {store.put_blob(data): len(data) for data in (CODE, key.digest.encode())}
            store.publish(key, {"created": created}, sizes, {"gears": ["x=1"]})


@pytest.fixture
def source(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "source", "rank1")
    fill(layout)
    return layout


def bundle_of(layout: Layout, target: Path) -> Path:
    write_bundle(layout, Catalog(layout).entries(), target)
    return target


def test_a_bundle_carries_entries_to_another_root(source: Layout, tmp_path: Path) -> None:
    entries = Catalog(source).entries()
    exported = write_bundle(source, entries, tmp_path / "bundle.tar")
    assert (len(exported.entries), exported.blobs, exported.size) == (3, 4, 3000 + 3 * 64)
    target = Layout(tmp_path / "target", "rank1")
    imported = take_bundle(target, tmp_path / "bundle.tar", joined)
    assert (sorted(imported.entries), imported.blobs, imported.size) == (sorted(exported.entries), 4, exported.size)
    for key in KEYS:
        assert DiskStore(target).lookup(key) == DiskStore(source).lookup(key)
        assert DiskStore(target).use(key)
    assert verify(target).faults == []
    assert {entry.name for entry in Catalog(target).entries()} == {key.name for key in KEYS}
    assert (tmp_path / "bundle.tar").stat().st_mode & 0o777 == 0o600
    again = take_bundle(target, tmp_path / "bundle.tar", joined)
    assert (again.entries, sorted(again.skipped)) == ([], sorted(exported.entries))


def test_of_an_entry_that_is_present_nothing_is_lost(tmp_path: Path) -> None:
    for name, gears in (("source", {"1": b"one", "2": b"two"}), ("target", {"2": b"other two", "3": b"three"})):
        store_gears(tmp_path / name, KEYS[0], gears)
    bundle = bundle_of(Layout(tmp_path / "source"), tmp_path / "bundle.tar")
    target = Layout(tmp_path / "target")
    assert take_bundle(target, bundle, joined).entries == [KEYS[0].name]
    found = DiskStore(target).lookup(KEYS[0])
    assert isinstance(found, Hit)
    assert texts(found.manifest) == ["1", "2", "2", "3"]
    stored = {DiskStore(target).read_blob(digest) for digest in found.manifest.blobs}
    assert stored == {b"one", b"two", b"other two", b"three"}
    assert take_bundle(target, bundle, joined).skipped == [KEYS[0].name]
    assert verify(target).faults == []


@pytest.mark.parametrize("reason", ["other format", "fault"])
def test_an_own_entry_that_cannot_be_read_now_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    for name, gears in (("source", {"1": b"one"}), ("target", {"2": b"two"})):
        store_gears(tmp_path / name, KEYS[0], gears)
    bundle = bundle_of(Layout(tmp_path / "source"), tmp_path / "bundle.tar")
    target = Layout(tmp_path / "target")
    path = target.manifest(KEYS[0])
    if reason == "other format":
        path.write_bytes(framed(b"", version=FORMAT_VERSION + 1))
    held = path.read_bytes()
    with monkeypatch.context() as patch:
        if reason == "fault":
            patch.setattr(manifests, "read_trusted", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        taken = take_bundle(target, bundle, joined)
    assert path.read_bytes() == held
    assert (taken.entries, list(taken.failed)) == ([], [KEYS[0].name])
    assert {"other format": "written by format", "fault": "Too many open files"}[reason] in taken.failed[KEYS[0].name]


@pytest.mark.parametrize("damage", ["blob", "gone"])
def test_a_damaged_entry_is_not_exported_and_an_old_bundle_stays(source: Layout, tmp_path: Path, damage: str) -> None:
    entries = Catalog(source).entries()
    bundle = tmp_path / "bundle.tar"
    bundle.write_bytes(b"old")
    if damage == "blob":
        source.blob(DIGEST).write_bytes(b"d" * 3000)
    else:
        source.manifest(KEYS[0]).unlink()
    with pytest.raises(CacheError) as caught:
        write_bundle(source, entries, bundle)
    assert isinstance(caught.value, CorruptEntry) or damage == "gone"
    assert bundle.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle.tar", "source"]


def header(**changes: object) -> tuple[str, bytes]:
    return HEADER_NAME, json.dumps({"bundle": 1, "format": FORMAT_VERSION, **changes}).encode()


def manifest(name: str = "", blobs: dict[str, int] | None = None) -> bytes:
    key = KEYS[0]
    fields = asdict(Manifest(key.name, key.digest, {}, {}, blobs or {}, 1.0, {}))
    return framed(msgpack.encode({**fields, "name": name or key.name}))


PLACE = f"entries/Model.decode/{KEYS[0].digest}/manifest.msgpack"


def write(path: Path, *members: tuple[str, bytes] | tarfile.TarInfo, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


HOSTILE: dict[str, Callable[[Path], object]] = {
    "traversal": lambda path: write(path, header(), ("../../outside", b"x")),
    "absolute": lambda path: write(path, header(), ("/tmp/gearcache-outside", b"x")),
    "blob traversal": lambda path: write(path, header(), ("blobs/../../outside", b"x")),
    "link": lambda path: write(path, header(), special("blobs/" + DIGEST, tarfile.SYMTYPE, "/etc/passwd")),
    "hard link": lambda path: write(path, header(), special("blobs/" + DIGEST, tarfile.LNKTYPE, HEADER_NAME)),
    "sparse": lambda path: write(path, header(), special("blobs/" + DIGEST, tarfile.GNUTYPE_SPARSE)),
    "label traversal": lambda path: write(
        path, header(), (f"entries/../{KEYS[0].digest}/manifest.msgpack", manifest(f"..-{KEYS[0].digest}"))
    ),
    "ranks traversal": lambda path: write(
        path, header(), (f"entries/Model.decode/{KEYS[0].digest}/../manifest.msgpack", manifest())
    ),
    "another place": lambda path: write(path, header(), (PLACE.replace(KEYS[0].digest, KEYS[1].digest), manifest())),
    "damaged manifest": lambda path: write(path, header(), (PLACE, manifest()[:-1])),
    "blob that it lacks": lambda path: write(path, header(), (PLACE, manifest(blobs={DIGEST: 3000}))),
    "blob of another size": lambda path: write(
        path, header(), ("blobs/" + DIGEST, CODE), (PLACE, manifest(blobs={DIGEST: 2999}))
    ),
    "blob of other bytes": lambda path: write(path, header(), ("blobs/" + DIGEST, b"other")),
    "twice": lambda path: write(path, header(), ("blobs/" + DIGEST, CODE), ("blobs/" + DIGEST, CODE)),
    "another format": lambda path: write(path, header(format=FORMAT_VERSION + 1)),
    "compressed": lambda path: write(path, header(), mode="w:gz"),
    "a pipe": lambda path: os.mkfifo(path),
    "huge extended header": lambda path: path.write_bytes(huge_extended_header()),
}


def huge_extended_header() -> bytes:
    info = special("x", tarfile.XHDTYPE)
    info.size = (8 << 30) - 1
    return info.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 1024


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_damaged_bundle_writes_nothing_but_whole_blobs(tmp_path: Path, name: str) -> None:
    bundle, target = tmp_path / "bundle.tar", Layout(tmp_path / "a" / "b" / "target")
    HOSTILE[name](bundle)
    with pytest.raises(BundleError, match=str(bundle)):
        take_bundle(target, bundle, joined)
    outside = {path for path in tmp_path.rglob("*") if target.root not in (path, *path.parents)}
    assert outside <= {bundle, tmp_path / "a", tmp_path / "a" / "b"}
    assert not Path("/tmp/gearcache-outside").exists()
    assert list(target.entries()) == []
    assert all(path.name == sha256(path.read_bytes()).hexdigest() for path in target.blobs())


def test_a_bundle_larger_than_allowed_is_refused(source: Layout, tmp_path: Path) -> None:
    bundle = bundle_of(source, tmp_path / "bundle.tar")
    with pytest.raises(BundleError, match="more than 3000 bytes"):
        take_bundle(Layout(tmp_path / "target"), bundle, joined, max_size=3000)
    assert take_bundle(Layout(tmp_path / "target"), bundle, joined, max_size=10_000).blobs == 4


def test_a_bundle_that_others_can_write_is_refused(source: Layout, tmp_path: Path) -> None:
    bundle = bundle_of(source, tmp_path / "bundle.tar")
    bundle.chmod(0o602)
    target = Layout(tmp_path / "target", "rank1")
    with pytest.raises(UnsafePath, match="mode 0602 lets others write") as caught:
        take_bundle(target, bundle, joined)
    assert "take a copy of your own" in str(caught.value)
    assert not list(target.blobs())
    bundle.chmod(0o644)
    assert len(take_bundle(target, bundle, joined).entries) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("way", ["none", "a copy", "its folder is named", "signatures"])
def test_a_bundle_of_another_user_is_refused_unless_somebody_vouches_for_it(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_by = signer(tmp_path)
    layout = Layout(tmp_path / "source")
    fill(layout, signed_by)
    (tmp_path / "brought").mkdir()
    bundle = bundle_of(layout, tmp_path / "brought" / "bundle.tar")
    os.chown(bundle, 54321, 54321)
    target = Layout(tmp_path / "target")
    if way == "none":
        with pytest.raises(UnsafePath, match="belongs to user 54321"):
            take_bundle(target, bundle, joined)
        return
    if way == "a copy":
        bundle = bundle.rename(tmp_path / "old")
        bundle = Path(shutil.copy(bundle, tmp_path / "mine"))
    elif way == "its folder is named":
        monkeypatch.setenv(TRUSTED_VARIABLE, str(bundle.parent))
    trust = Trust(hmac=signed_by) if way == "signatures" else None
    assert len(take_bundle(target, bundle, joined, trust=trust).entries) == 3
