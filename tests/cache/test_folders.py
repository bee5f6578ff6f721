"""Folders of the cache that others could have exchanged are refused, with the path and the fix."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore, Hit, Miss, prepare_folder
from gearcache.errors import UnsafePath
from tests.support.conformance import read_file

KEY = CacheKey("Model.decode", (("a", 1),))
DIGEST = sha256(b"code").hexdigest()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "the cache", "rank1")
    store = DiskStore(layout)
    store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})
    return layout


FOLDERS: dict[str, Callable[[Layout], Path]] = {
    "root": lambda layout: layout.root,
    "bucket": lambda layout: layout.bucket,
    "entries": lambda layout: layout.entries_folder,
    "label": lambda layout: layout.entries_folder / "Model.decode",
    "entry": lambda layout: layout.entries_folder / "Model.decode" / KEY.digest,
    "ranks": lambda layout: layout.manifest(KEY).parent,
    "blobs": lambda layout: layout.blobs_folder,
    "shard": lambda layout: layout.blob(DIGEST).parent,
}


def use_everything(layout: Layout) -> None:
    store = DiskStore(layout)
    assert isinstance(store.lookup(KEY), Hit)
    assert store.read_blob(DIGEST) == b"code"
    assert read_file(store, DIGEST) == b"code"


def write_everything(layout: Layout) -> None:
    store = DiskStore(layout)
    prepare_folder(layout, layout.blob(DIGEST).parent)  # as before a blob is written there
    store.publish(KEY, {"new": 1}, {}, {})


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_others_can_write_is_refused(layout: Layout, name: str) -> None:
    folder = FOLDERS[name](layout)
    for mode in (0o770, 0o707, 0o1777):
        folder.chmod(mode)
        for work in (use_everything, write_everything):
            with pytest.raises(UnsafePath) as caught:
                work(layout)
            assert caught.value.path == folder
            assert f"chmod go-w {shlex.quote(str(folder))}`" in str(caught.value)
    folder.chmod(0o755)
    use_everything(layout)
    write_everything(layout)


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "root"])
def test_a_folder_that_is_a_link_is_refused(layout: Layout, name: str, tmp_path: Path) -> None:
    folder = FOLDERS[name](layout)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    for work in (use_everything, write_everything):
        with pytest.raises(UnsafePath, match="symbolic link") as caught:
            work(layout)
        assert caught.value.path == folder
    assert {path for path in before if "elsewhere" in path.parts} <= set(tmp_path.rglob("*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["root", "entry", "shard"])
def test_a_folder_of_another_user_is_refused(layout: Layout, name: str) -> None:
    os.chown(FOLDERS[name](layout), 65534, 65534)
    for work in (use_everything, write_everything):
        with pytest.raises(UnsafePath, match="belongs to user 65534"):
            work(layout)


def test_what_is_written_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        layout = Layout(tmp_path / "above" / "cache")
        store = DiskStore(layout)
        with store.exclusive(KEY):
            store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})
        layout.manifest(KEY).write_bytes(b"damaged")
        assert isinstance(store.lookup(KEY), Miss)
        assert Catalog(layout).entries() == []
    finally:
        os.umask(before)
    assert layout.root.parent.stat().st_mode & 0o777 == 0o755, "a folder above, made as well: nobody else writes it"
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in (layout.root, *layout.root.rglob("*"))}
    assert modes == {(True, 0o700), (False, 0o600)}
    assert len(list(layout.quarantine_folder.iterdir())) == 2
