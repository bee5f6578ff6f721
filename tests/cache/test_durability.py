"""What has returned stays after a power cut, as strict POSIX has it: a name is on disk when its folder was synced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.packed.bundle import take_bundle, write_bundle
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import MANIFEST_NAME, Layout
from gearcache.cache.store import DiskStore
from gearcache.readable.joined import joined

KEY = CacheKey("Model.decode", (("a", 1),))


class Disk:
    """Knows which names below a folder would be gone, were the power cut now; those at the start count as unsynced."""

    def __init__(self, top: Path, patch: pytest.MonkeyPatch) -> None:
        self.lost = {str(path) for path in (top, *top.rglob("*"))}
        #: What would be lost when a manifest appears, beside itself.
        self.lost_at_manifest: set[str] = set()
        for name in ("mkdir", "rename", "replace", "link"):
            patch.setattr(os, name, self._naming(getattr(os, name), -1 if name != "mkdir" else 0))
        sync = os.fsync

        def fsync(descriptor: int) -> None:
            sync(descriptor)
            folder = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            self.lost = {name for name in self.lost if str(Path(name).parent) != folder}

        patch.setattr(os, "fsync", fsync)

    def _naming(self, function: Callable[..., Any], which: int) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            made = str(arguments[0 if which == 0 else 1])
            if Path(made).name == MANIFEST_NAME:
                self.lost_at_manifest |= self.lost
            result = function(*arguments, **keywords)
            self.lost.add(made)
            return result

        return call

    def lost_of(self, paths: list[Path], top: Path) -> set[str]:
        """Of these files and the folders above them, below `top`, what would be lost."""
        needed = {str(each) for path in paths for each in (path, *path.parents) if top in each.parents}
        return needed & self.lost


def published(layout: Layout) -> list[Path]:
    store = DiskStore(layout)
    with store.writing():
        sizes = {store.put_blob(data): len(data) for data in (b"code", b"more")}
        store.publish(KEY, {}, sizes, {})
    return [layout.manifest(KEY), *map(layout.blob, sizes)]


@pytest.mark.parametrize(
    "how, before",
    [
        ("publish", "nothing"),
        ("publish", "folders of a process that has not synced them"),
        ("publish", "blobs"),
        ("publish", "entry"),
        ("import", "nothing"),
        ("import", "blobs"),
    ],
)
def test_what_was_stored_survives_a_power_cut(
    tmp_path: Path, how: str, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Layout(tmp_path / "source")
    published(source)
    write_bundle(source, Catalog(source).entries(), tmp_path / "bundle.tar")
    top = tmp_path / "top"
    top.mkdir()
    layout = Layout(top / "a" / "b" / "cache", "rank1" if how == "publish" else "")
    if before.startswith("folders"):
        layout.manifest(KEY).parent.mkdir(parents=True)
        for shard in range(256):
            (layout.blobs_folder / f"{shard:02x}").mkdir(parents=True)
    elif before != "nothing":
        files = published(layout)
        if before == "blobs":
            files[0].unlink()
    with monkeypatch.context() as patch:
        disk = Disk(top, patch)
        if how == "publish":
            files = published(layout)
        else:
            assert len(take_bundle(layout, tmp_path / "bundle.tar", joined).entries) == 1
            files = [layout.manifest(KEY), *layout.blobs()]
    # The folders above the root are of whoever makes them: synced by who does.
    below = top if before == "nothing" else layout.root.parent
    assert disk.lost_of(files, below) == set()
    needed_first = {str(each) for path in files[1:] for each in (path, *path.parents) if below in each.parents}
    assert disk.lost_at_manifest & needed_first == set()
