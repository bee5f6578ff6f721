"""A disk that fails at any call, and pipes and links in the place of files: no unexpected error, and nothing hangs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.admin.catalog import Catalog, Removal
from gearcache.cache.admin.folder_marks import other_formats
from gearcache.cache.admin.health import check_health
from gearcache.cache.admin.packed.bundle import take_bundle, write_bundle
from gearcache.cache.admin.tally import count_misses, misses
from gearcache.cache.admin.verify import verify
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.limits import Limits
from gearcache.cache.signatures.signature import Signer
from gearcache.cache.store import DiskStore, Hit
from gearcache.errors import CacheError
from gearcache.ge_cache.npu.compiled_graphs import graph_folder
from gearcache.readable.joined import joined
from tests.support.sampled import examples, sampled

CALLS = ("open", "read", "readv", "write", "fsync", "stat", "lstat", "scandir", "listdir", "mkdir", "rmdir")
CALLS += ("rename", "replace", "unlink", "link", "utime", "fstat", "chmod")
KEYS = [CacheKey(f"Model.{name}", (("name", name),)) for name in ("decode", "prefill")]


@contextmanager
def failing(root: Path, first: int, error: int, more: bool) -> Iterator[list[int]]:
    """Fail the call of this number that touches the root, with `more` all after it too; yields how many there were."""
    made = [0]
    originals = {name: getattr(os, name) for name in CALLS}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            target = arguments[0] if arguments else "."
            if isinstance(target, int):
                with suppress(OSError):
                    target = originals_readlink(f"/proc/self/fd/{target}")
            if str(target).startswith(str(root)):
                made[0] += 1
                if made[0] == first or (more and made[0] > first):
                    raise OSError(error, os.strerror(error), str(target))
            return originals[name](*arguments, **keywords)

        return call

    originals_readlink = os.readlink
    try:
        for name in CALLS:
            setattr(os, name, wrapped(name))
        yield made
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


def prepared(root: Path) -> None:
    """A cache with everything that there can be; its key and a bundle lie in it too."""
    layout = Layout(root)
    for key in KEYS:
        store = DiskStore(layout)
        with store.exclusive(key):
            producer = {"gears": ["a"], "folders": key is KEYS[0]}
            store.publish(key, {}, {store.put_blob(key.digest.encode()): 64}, producer)
    compile_graph(layout)
    Catalog(layout).entries()
    (root / "key").write_bytes(b"k" * 32)
    (root / "key").chmod(0o600)
    write_bundle(layout, Catalog(layout).entries(), root / "bundle.tar")
    store.put_blob(b"unreferenced")
    layout.blob(store.put_blob(b"damaged")).write_bytes(b"wrong")
    layout.manifest(KEYS[1]).write_bytes(b"damaged")
    layout.quarantine("old").write_bytes(b"old")
    (layout.root / "v1" / "entries").mkdir(parents=True)
    count_misses(layout, "Model.decode", ["absent"])


def compile_graph(layout: Layout) -> None:
    with graph_folder(layout.manifest(KEYS[0]).parent / "ge", "graph", 0) as folder:
        (folder / "graph.om").write_bytes(b"graph")


def load(layout: Layout) -> None:
    store = DiskStore(layout, signer=Signer(layout.root / "key"))
    store.load(KEYS[0])
    store.count_load(KEYS[0])
    store = DiskStore(layout)
    found = store.lookup(KEYS[0])
    if isinstance(found, Hit):
        for digest in found.manifest.blobs:
            store.read_blob(digest)


def publish(layout: Layout) -> None:
    store = DiskStore(layout, lock_timeout=0)
    with store.exclusive(KEYS[1]):
        store.publish(KEYS[1], {}, {store.put_blob(b"new"): 3}, {})


#: What raises nothing but `CacheError` for a fault of the disk.
OTHERS: dict[str, Callable[[Layout], object]] = {
    "load": load,
    "publish": publish,
    "export": lambda layout: write_bundle(layout, Catalog(layout).entries(), layout.root / "new.tar"),
    "import": lambda layout: take_bundle(layout, layout.root / "bundle.tar", joined),
}
#: What never raises.
SAFE: dict[str, Callable[[Layout], object]] = {
    "list": lambda layout: Catalog(layout).entries(),
    "look": lambda layout: Catalog(layout).collect(dry_run=True),
    "verify": lambda layout: verify(layout),
    "other formats": lambda layout: other_formats(layout.root),
    "misses": lambda layout: (count_misses(layout, "Model.decode", ["absent"]), misses(layout)),
    "health": lambda layout: check_health(layout, layout.root / "key"),
    "limits": lambda layout: DiskStore(layout, limits=Limits(max_size=0)).keep_limits(KEYS[0]),
    "repair": lambda layout: verify(layout, repair=True),
    "quarantine": lambda layout: Catalog(layout).clear_quarantine(Removal()),
    "prune": lambda layout: Catalog(layout, patience=0).prune(max_size=0, max_age=0),
    "collect": lambda layout: Catalog(layout, patience=0).collect(),
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "cache"
    prepared(folder)
    return folder


@pytest.mark.parametrize("name", [*SAFE, *OTHERS])
def test_a_disk_that_fails_at_any_call_raises_nothing_unexpected(pristine: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / "cache"
    work = {**SAFE, **OTHERS}[name]
    errors = (errno.EIO, errno.ESTALE, errno.EACCES)
    shutil.copytree(pristine, root)
    with failing(root, 0, errno.EIO, more=False) as made:
        work(Layout(root))
    total = made[0]
    assert total >= 3
    # Most of the first calls, where the paths part, and some of the rest.
    for number in [*range(1, min(total, 12) + 1), *range(13, total + 1, 1 + total // examples(12))]:
        shutil.rmtree(root)
        shutil.copytree(pristine, root)
        with failing(root, number, errors[number % 3], more=number % 2 == 0):
            if name in SAFE:
                work(Layout(root))
            else:
                with suppress(CacheError):
                    work(Layout(root))
        found = DiskStore(Layout(root)).lookup(KEYS[0])
        assert isinstance(found, Hit) or name == "prune"


@pytest.mark.timeout(100)
@pytest.mark.parametrize("kind", sampled(["pipe", "link"], ["pipe"]))
def test_nothing_in_the_place_of_a_file_hangs_a_process(pristine: Path, tmp_path: Path, kind: str) -> None:
    root, tried = tmp_path / "cache", set()
    for file in sorted(path.relative_to(pristine) for path in pristine.rglob("*") if path.is_file()):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(pristine, root)
        (root / file).unlink()
        if kind == "pipe":
            os.mkfifo(root / file, 0o600)
        else:
            (root / file).symlink_to("/dev/zero")
        for work in (*OTHERS.values(), *SAFE.values(), compile_graph):
            with suppress(CacheError, OSError):
                work(Layout(root))
        tried.add(file.name)
    assert tried >= {"manifest.msgpack", "use", "store.lock", "absent", "lock", "cache.db", "sums.msgpack"}
    assert tried >= {"key", "bundle.tar"}
