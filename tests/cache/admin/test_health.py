"""What `gearcache doctor` finds out about a cache folder."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from gearcache.cache.admin import health as health_module
from gearcache.cache.admin.health import HealthCheck, check_health
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore

KEY = CacheKey("Model.decode", (("a", 1),))


def checks(layout: Layout, key_file: Path | None = None) -> dict[str, HealthCheck]:
    return {check.name: check for check in check_health(layout, key_file)}


def tree(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "index" not in path.parts}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "cache")
    store = DiskStore(layout)
    store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})
    return layout


def test_a_sound_cache_passes_and_is_left_as_it_is(layout: Layout) -> None:
    before = tree(layout.root)
    found = checks(layout)
    assert {name for name, check in found.items() if check.ok is False} == set()
    assert found["entries"].detail.startswith("1 entry, ")
    assert tree(layout.root) == before


@pytest.mark.parametrize("fault", ["folder", "permissions", "entries", "writing", "locks", "space", "signatures"])
def test_a_fault_is_named_with_what_to_do(
    layout: Layout, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = None
    if fault == "folder":
        shutil.rmtree(layout.root)
        layout.root.touch()
    elif fault == "permissions":
        layout.blobs_folder.chmod(0o777)
    elif fault == "entries":
        layout.manifest(KEY).write_bytes(b"damaged")
    elif fault == "writing":

        def deny(path: Path, data: bytes) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(health_module, "write_atomic", deny)
    elif fault == "locks":
        monkeypatch.setattr(fcntl, "flock", lambda *_: None)  # as on a file system that only pretends
    elif fault == "space":
        monkeypatch.setattr(health_module, "LITTLE_SPACE", 1 << 62)
    else:
        key_file = tmp_path / "missing"
    found = checks(layout, key_file)
    assert {name for name, check in found.items() if check.ok is False} == {fault}
    assert found[fault].remedy


def test_a_folder_that_others_can_write_is_one_fault(layout: Layout) -> None:
    layout.root.chmod(0o775)
    found = checks(layout)
    assert [name for name, check in found.items() if check.ok is False] == ["permissions"]
    assert "entries" not in found, "no entry is damaged"


def test_a_folder_that_cannot_be_made_is_one_fault() -> None:
    found = checks(Layout(Path("/proc/nowhere/cache")))
    assert [name for name, check in found.items() if check.ok is False] == ["folder"]
    assert found["folder"].detail.startswith("`/proc/nowhere/cache` is not there, and cannot be made in `/proc`: ")
    assert found["folder"].remedy == "choose another `cache_dir`"
    assert {"writing", "locks", "space"}.isdisjoint(found)
