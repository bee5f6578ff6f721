"""A disk that fails at any call: what never raises does not, and all else is an error of gearcache's or a plain one."""

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
from gearcache.cache.admin.counts import Counts, reset_counts
from gearcache.cache.admin.health import check_health
from gearcache.cache.admin.packed.bundle import take_bundle, write_bundle
from gearcache.cache.admin.tally import count_misses, misses
from gearcache.cache.admin.verify import verify
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.limits import Limits
from gearcache.cache.store import DiskStore, Hit
from gearcache.errors import CacheError
from gearcache.readable.joined import joined
from tests.support.sampled import examples

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
    for key in KEYS:
        store = DiskStore(Layout(root))
        store.publish(key, {}, {store.put_blob(key.digest.encode()): 64}, {"gears": ["a"]})
    layout = Layout(root)
    store.put_blob(b"unreferenced")
    layout.blob(store.put_blob(b"damaged")).write_bytes(b"wrong")
    layout.manifest(KEYS[1]).write_bytes(b"damaged")
    layout.quarantine("old").write_bytes(b"old")
    (layout.root / "v1" / "entries").mkdir(parents=True)
    count_misses(layout, "Model.decode", ["absent"])


#: What never raises for a fault of the disk.
SAFE: dict[str, Callable[[Layout], object]] = {
    "list": lambda layout: Catalog(layout).entries(),
    "prune": lambda layout: Catalog(layout, patience=0).prune(max_size=0, max_age=0),
    "collect": lambda layout: Catalog(layout, patience=0).collect(),
    "look": lambda layout: Catalog(layout).collect(dry_run=True),
    "verify": lambda layout: verify(layout),
    "repair": lambda layout: verify(layout, repair=True),
    "quarantine": lambda layout: Catalog(layout).clear_quarantine(Removal()),
    "other formats": lambda layout: Catalog(layout).other_formats(),
    "counts": lambda layout: Counts(layout).misses(),
    "misses": lambda layout: (count_misses(layout, "Model.decode", ["absent"]), misses(layout)),
    "health": lambda layout: check_health(layout),
    "limits": lambda layout: DiskStore(layout, limits=Limits(max_size=0)).keep_limits(KEYS[0]),
}
#: What raises nothing but `CacheError`.
OTHERS: dict[str, Callable[[Layout], object]] = {
    "reset": lambda layout: reset_counts(layout, [], 1.0),
    "load": lambda layout: DiskStore(layout).load(KEYS[0]),
    "publish": lambda layout: publish(layout),
    "export": lambda layout: write_bundle(layout, Catalog(layout).entries(), layout.root / "bundle"),
    "import": lambda layout: take_bundle(layout, layout.root.with_name("bundle.tar"), joined),
}


def publish(layout: Layout) -> None:
    store = DiskStore(layout, lock_timeout=1)
    with store.exclusive(KEYS[1]):
        store.publish(KEYS[1], {}, {store.put_blob(b"new"): 3}, {})


@pytest.mark.parametrize("name", [*SAFE, *OTHERS])
def test_a_disk_that_fails_at_any_call_raises_nothing_unexpected(tmp_path: Path, name: str) -> None:
    pristine, root = tmp_path / "pristine", tmp_path / "cache"
    prepared(pristine)
    write_bundle(Layout(pristine), Catalog(Layout(pristine)).entries(), tmp_path / "bundle.tar")
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
