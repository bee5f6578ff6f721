"""Disks that are full, read-only, closed or gone: the model runs, one warning is given, and nothing else is deleted."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.verify import verify
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.result import Hit, MissReason
from gearcache.cache.store import DiskStore
from tests.product.test_crashes import report, run

KEY = CacheKey("Model.decode", (("a", 1),))


def can_mount() -> bool:
    command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def run_mounted(folder: Path, options: str, scenario: str) -> dict[str, Any]:
    """Run a scenario of the product in a mount name space of its own, with a tmpfs at the folder."""
    folder.mkdir()
    before = f"from tests.support.mounted import mount_here; mount_here({str(folder)!r}, {options!r})"
    return report(run("product_actors.py", folder / "cache", scenario, before=before))


needs_mount = pytest.mark.skipif(not can_mount(), reason="no file system can be mounted here")


@pytest.mark.slow
@needs_mount
def test_a_full_disk_costs_the_cache_and_nothing_else(tmp_path: Path) -> None:
    found = run_mounted(tmp_path / "disk", "size=400k", "full")
    full = found["full"]
    assert (full["compiles"], full["faults"]) == (2, 1)
    (warning,) = full["warnings"]
    assert "No space left on device" in warning
    assert (found["neighbour"]["hits"], found["neighbour"]["warnings"]) == (1, [])
    assert found["sound"] is True
    assert found["leftovers"] == []
    assert (found["freed"]["compiles"], found["freed"]["warnings"]) == (2, [])
    assert (found["later"]["hits"], found["later"]["traces"]) == (1, 0)


@pytest.mark.slow
@needs_mount
def test_a_read_only_cache_serves_hits_and_takes_nothing(tmp_path: Path) -> None:
    found = run_mounted(tmp_path / "disk", "size=4m", "read_only")
    assert (found["hit"]["hits"], found["hit"]["traces"], found["hit"]["warnings"]) == (1, 0, [])
    assert (found["miss"]["compiles"], found["miss"]["faults"]) == (2, 1)
    (warning,) = found["miss"]["warnings"]
    assert "Read-only file system" in warning
    assert found["faults"] == []


def linear(root: Path, **options: Any) -> tuple[torch.nn.Linear, Any]:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 4)
    config = gearcache.CompilerConfig(backend="eager", **options)
    return module, gearcache.cache_compile(module.forward, config=config, cache_dir=root, dynamic=False)


def test_a_folder_removed_while_running_is_made_again(cache_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    module, cached = linear(cache_dir, strict=True)
    with torch.no_grad():
        for size in (2, 3, 4):
            x = torch.randn(size, 4)
            assert torch.equal(cached(x), module(x))
            assert torch.equal(cached(x), module(x))
            shutil.rmtree(cache_dir)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    module, cached = linear(cache_dir, strict=True)
    with torch.no_grad():
        x = torch.randn(2, 4)
        assert torch.equal(cached(x), module(x))
    assert cached.stats.compiles == 1
    assert verify(Layout(cache_dir)).is_sound


def test_limits_from_the_environment_are_kept(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARCACHE_MAX_SIZE", "1B")
    for width in (3, 4, 5):
        module = torch.nn.Linear(width, width)
        config = gearcache.CompilerConfig(backend="eager", strict=True)
        cached = gearcache.cache_compile(module.forward, config=config, cache_dir=cache_dir)
        with torch.no_grad():
            cached(torch.randn(2, width))
        entry = cached.entry_path
        del cached, module  # an entry is in use as long as its method lives
        gc.collect()
    assert [str(Catalog(Layout(cache_dir)).path(found)) for found in Catalog(Layout(cache_dir)).entries()] == [entry]
    assert len(list(Layout(cache_dir).blobs())) == 1


OTHER_USER = """
import os, sys
from pathlib import Path
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.store import DiskStore
from gearcache.cache.layout import Layout
from gearcache.cache.admin.catalog import Catalog
import filelock, gearcache.cache.admin.index  # unreadable for others
from gearcache.errors import CacheError
os.setgid(65534); os.setuid(65534)
store = DiskStore(Layout(Path(sys.argv[1])), lock_timeout=0)
key = CacheKey("Model.decode", (("a", 1),))
print(store.lookup(key).reason.value)
for attempt in (lambda: store.put_blob(b"x"), lambda: store.exclusive(key).__enter__()):
    try:
        attempt()
    except CacheError as error:
        print(type(error).__name__)
catalog = Catalog(store.layout)
print(catalog.entries(), len(catalog.faults))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_without_permission_is_a_miss_and_stays_as_it_is() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "cache")
        store = DiskStore(Layout(root))
        store.publish(KEY, {}, {}, {})
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", OTHER_USER, str(root)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert isinstance(store.lookup(KEY), Hit)
    assert done.stderr == ""
    assert done.stdout == f"{MissReason.UNREADABLE.value}\nPublishError\nPublishError\n[] 1\n"
