"""Measures the store by itself, beside diskcache and torch: publish, load, lookup, many writers, 100,000 entries.

torch's side is `write_atomic` of `torch._inductor.codecache`, with which FxGraphCache writes a graph to disk, and
reading that file. Neither it nor diskcache waits for the disk (`fsync`) or verifies what it reads; the store does both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._process import ROOT, Session
from benchmarks._sample import NO_BUDGET, Budget, Ratio, Sample

SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20, "16 MB": 16 << 20}
WRITERS = (1, 2, 4, 8)


def rows(session: Session, model: str) -> list[Ratio]:
    """Return all rows; `model` is not used."""
    quick = session.options.quick
    order = {"repeats": 10 if quick else 40}
    ours = session.run("store, by size", "benchmarks.store:our_sizes", order, home="store sizes").report
    disk = session.run("diskcache, by size", "benchmarks.store:diskcache_sizes", order, home="diskcache sizes").report
    torch = session.run("torch, by size", "benchmarks.store:torch_sizes", order, home="torch sizes").report
    found = []
    for what in ("publish", "load"):
        for size in SIZES:
            name = f"{what} {size}"
            for peer, report in (("diskcache", disk), ("FxGraphCache", torch)):
                found.append(Ratio(f"{what}: {size}, beside {peer}", _sample(report, name), _sample(ours, name)))
    found.append(Ratio("lookup: hit, beside diskcache", _sample(disk, "lookup"), _sample(ours, "lookup")))
    found.append(Ratio("lookup: what a hit adds for eviction", None, _sample(ours, "use"), Budget(ours_at_most=0.0002)))
    for count in WRITERS[:2] if quick else WRITERS:
        order = {"writers": count, "publishes": 20 if quick else 50}
        mine = session.run(f"store, {count} writers", "benchmarks.store:our_writers", order, home=f"writers {count}")
        theirs = session.run(
            f"diskcache, {count} writers",
            "benchmarks.store:diskcache_writers",
            order,
            home=f"diskcache writers {count}",
        )
        name = f"writers: {count}, one publish of 100 KB each"
        found.append(Ratio(name, _sample(theirs.report, "each"), _sample(mine.report, "each")))
    count = 10_000 if quick else 100_000
    many = session.run(f"store, {count:,} entries", "benchmarks.store:our_many", {"entries": count}, home="many").report
    # In a separate process, as the commands are.
    many |= session.run("store, their list", "benchmarks.store:our_lists", {"entries": count}, home="many").report
    theirs = session.run(
        f"diskcache, {count:,} entries", "benchmarks.store:diskcache_many", {"entries": count}, home="diskcache many"
    )
    label = f"{count:,} entries"
    found += [
        Ratio(f"{label}: lookup, hit", _sample(theirs.report, "hit"), _sample(many, "hit"), Budget(None, 0.001)),
        Ratio(f"{label}: lookup, miss explained", None, _sample(many, "explained"), Budget(None, 0.001)),
        Ratio(f"{label}: the same, all of one label", None, _sample(many, "crowded"), Budget(None, 0.001)),
        Ratio(f"{label}: list", _sample(theirs.report, "list"), _sample(many, "list"), Budget(None, 1.0)),
        Ratio(f"{label}: list without an index", None, _sample(many, "list anew"), NO_BUDGET),
        Ratio(f"{label}: evict 1,000", None, _sample(many, "evict"), NO_BUDGET),
    ]
    return found


def _sample(report: dict[str, Any], name: str) -> Sample:
    return Sample.of(name, report[name], "s")


def _timed(work: Callable[[], object], repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return found


def _root() -> Path:
    return Path(os.environ["TORCHAIR_CACHE_HOME"])


def our_sizes(order: dict[str, Any]) -> dict[str, Any]:
    """Publish and load entries with one blob."""
    from gearcache.cache.keys.key import CacheKey
    from gearcache.cache.layout import Layout
    from gearcache.cache.store import DiskStore

    report: dict[str, Any] = {}
    layout = Layout(_root())
    for size_name, size in SIZES.items():
        numbers = iter(range(1 << 30))

        def publish(size: int = size, numbers: Any = numbers) -> None:
            number = next(numbers)
            data = number.to_bytes(8, "big") + bytes(size - 8)
            store = DiskStore(layout)
            with store.writing():
                store.publish(CacheKey("M.f", (("n", number), ("s", size))), {}, {store.put_blob(data): size}, {})

        report[f"publish {size_name}"] = _timed(publish, order["repeats"])
        key = CacheKey("M.f", (("n", 0), ("s", size)))

        def load(key: CacheKey = key) -> None:
            store = DiskStore(layout)
            for digest in store.lookup(key).manifest.blobs:  # type: ignore[union-attr]
                store.read_blob(digest)

        report[f"load {size_name}"] = _timed(load, order["repeats"])
    key = CacheKey("M.f", (("n", 0), ("s", SIZES["1 KB"])))
    report["lookup"] = _timed(lambda: DiskStore(layout).lookup(key), 200)

    def use() -> None:
        store = DiskStore(layout)
        store.use(key)
        store.count_load(key)

    report["use"] = _timed(use, 200)
    return report


def diskcache_sizes(order: dict[str, Any]) -> dict[str, Any]:
    """Set and get values."""
    import diskcache

    report: dict[str, Any] = {}
    with diskcache.Cache(str(_root()), eviction_policy="none", cull_limit=0) as cache:
        for size_name, size in SIZES.items():
            data = bytes(size)
            numbers = iter(range(1 << 30))
            report[f"publish {size_name}"] = _timed(
                lambda size=size, data=data, numbers=numbers: cache.set(f"{size}-{next(numbers)}", data),
                order["repeats"],
            )
            report[f"load {size_name}"] = _timed(lambda size=size: cache.get(f"{size}-0"), order["repeats"])
        report["lookup"] = _timed(lambda: cache.get(f"{SIZES['1 KB']}-0"), 200)
    return report


def torch_sizes(order: dict[str, Any]) -> dict[str, Any]:
    """Write as FxGraphCache does, and read that file."""
    from torch._inductor.codecache import write_atomic

    report: dict[str, Any] = {}
    root = _root()
    root.mkdir(parents=True)
    for size_name, size in SIZES.items():
        data = bytes(size)
        numbers = iter(range(1 << 30))
        report[f"publish {size_name}"] = _timed(
            lambda size=size, data=data, numbers=numbers: write_atomic(str(root / f"{size}-{next(numbers)}"), data),
            order["repeats"],
        )
        report[f"load {size_name}"] = _timed((root / f"{size}-0").read_bytes, order["repeats"])
    return report


def our_writers(order: dict[str, Any]) -> dict[str, Any]:
    """Run many processes that publish their own entries into one root."""
    return _writers("our_writer", order)


def diskcache_writers(order: dict[str, Any]) -> dict[str, Any]:
    """Run many processes that set values into one diskcache."""
    return _writers("diskcache_writer", order)


def _writers(name: str, order: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds from the start of the first process to the end of the last, per publish of one process."""
    command = [sys.executable, "-c", f"from benchmarks.store import {name}; {name}()", str(order["publishes"])]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen([*command, str(number)], cwd=ROOT, **pipes) for number in range(order["writers"])]
    for process in processes:
        process.stdout.read(1)  # type: ignore[union-attr]
    begin = time.perf_counter()
    for process in processes:
        process.stdin.close()  # type: ignore[union-attr]
    codes = [process.wait() for process in processes]
    seconds = time.perf_counter() - begin
    if any(codes):
        raise RuntimeError(f"writers ended with {codes}")
    return {"each": [seconds / order["publishes"]]}


def our_writer() -> None:
    """Act as one of many writers: publish this many entries on a signal."""
    from gearcache.cache.keys.key import CacheKey
    from gearcache.cache.layout import Layout
    from gearcache.cache.store import DiskStore

    publishes, number = map(int, sys.argv[1:])
    store = DiskStore(Layout(_root()))
    _ready()
    for turn in range(publishes):
        key = CacheKey("M.f", (("n", number), ("turn", turn)))
        data = f"{number} {turn} ".encode() * 10_000
        with store.exclusive(key), store.writing():
            store.publish(key, {}, {store.put_blob(data): len(data)}, {})


def diskcache_writer() -> None:
    """Do the same with diskcache."""
    import diskcache

    publishes, number = map(int, sys.argv[1:])
    with diskcache.Cache(str(_root()), eviction_policy="none", cull_limit=0) as cache:
        _ready()
        for turn in range(publishes):
            cache.set(f"{number} {turn}", f"{number} {turn} ".encode() * 10_000, retry=True)


def _ready() -> None:
    sys.stdout.write(".")
    sys.stdout.flush()
    sys.stdin.read()


def our_many(order: dict[str, Any]) -> dict[str, Any]:
    """Make entries under a thousand labels, and as many again under one."""
    from gearcache.cache.keys.key import CacheKey
    from gearcache.cache.layout import Layout
    from gearcache.cache.result import Hit
    from gearcache.cache.store import DiskStore

    sync, os.fsync = os.fsync, lambda descriptor: None  # to fill it in a minute
    count = order["entries"]
    layouts = Layout(_root() / "spread"), Layout(_root() / "crowded")
    for layout, labels in zip(layouts, (max(1, count // 100), 1), strict=True):
        store = DiskStore(layout)
        with store.writing():
            blob = store.put_blob(b"code")
            for number in range(count):
                store.publish(_key(number, labels), {}, {blob: 4}, {"gears": ["x=1", "x=2"], "torch": "2.13"})
                store._uses.clear()
    os.fsync = sync
    spread, crowded = (DiskStore(layout) for layout in layouts)
    labels = max(1, count // 100)
    hit, miss, other = _key(count // 2, labels), CacheKey("M.f7", (("n", -1),)), CacheKey("M.f0", (("n", -1),))
    assert isinstance(spread.lookup(hit), Hit)
    assert "nearest entry" in spread.lookup(miss).detail  # type: ignore[union-attr]
    return {
        "hit": _timed(lambda: spread.lookup(hit), 200),
        "explained": _timed(lambda: spread.lookup(miss), 200),
        "crowded": _timed(lambda: crowded.lookup(other), 200),
    }


def our_lists(order: dict[str, Any]) -> dict[str, Any]:
    """List the entries of `our_many`, and evict some of them."""
    from gearcache.cache.admin.catalog import Catalog
    from gearcache.cache.layout import Layout

    count = order["entries"]
    layout = Layout(_root() / "spread")
    catalog = Catalog(layout)
    assert len(catalog.entries()) == count  # makes the index
    report = {"list": _timed(catalog.entries, 5)}
    for path in layout.index_folder.iterdir():
        path.unlink()
    report["list anew"] = _timed(catalog.entries, 1)
    entries = catalog.entries()
    limit = catalog.total_size(entries) - sum(entry.manifest_size for entry in entries[-min(1000, count) :])
    report["evict"] = _timed(lambda: catalog.prune(max_size=limit), 1)
    assert count - 1010 <= len(catalog.entries()) <= count - 990
    return report


def _key(number: int, labels: int) -> Any:
    from gearcache.cache.keys.key import CacheKey

    return CacheKey(
        f"M.f{number % labels}", (("n", number), ("method", {"code": "x" * 40}), ("versions", {"torch": "2"}))
    )


def diskcache_many(order: dict[str, Any]) -> dict[str, Any]:
    """Store as many values in diskcache, and read them one by one and all at once."""
    import diskcache

    count = order["entries"]
    with diskcache.Cache(str(_root()), eviction_policy="none", cull_limit=0) as cache:
        with cache.transact():
            for number in range(count):
                cache.set(f"M.f{number}", b"x" * 300)
        hit = f"M.f{count // 2}"
        return {
            "hit": _timed(lambda: cache.get(hit), 200),
            "list": _timed(lambda: [cache.get(name) for name in cache], 1),
        }
