"""Many processes and threads at once: one compiles, all get it, nobody sees half an entry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.result import Hit, Miss
from gearcache.cache.store import DiskStore
from gearcache.errors import PublishError
from tests.product.test_crashes import report, run
from tests.support.scenarios import strict_config
from tests.support.source_tree import ROOT
from tests.support.store_actors import KEYS, publish

KEY = CacheKey("Model.decode", (("a", 1),))


@pytest.mark.slow
def test_32_processes_with_one_cold_key_compile_it_once_and_all_get_it(tmp_path: Path) -> None:
    reports = report(run("product_actors.py", tmp_path / "cache", "together", "32"))["reports"]
    assert len(reports) == 32
    assert [found for found in reports if "error" in found or found["warnings"] or found["faults"]] == []
    assert sum(found["traces"] for found in reports) == 1
    assert sum(found["compiles"] for found in reports) == 2  # the two gears
    assert sum(found["hits"] for found in reports) == 31


@pytest.mark.slow
def test_a_holder_that_hangs_costs_the_others_a_timeout_and_other_keys_nothing(tmp_path: Path) -> None:
    found = report(run("product_actors.py", tmp_path / "cache", "hung"))
    other = found["other"]
    assert (other["compiles"], other["faults"]) == (2, 1)
    (warning,) = other["warnings"]
    assert "waited 1 s" in warning
    assert "GEARCACHE_LOCK_TIMEOUT" in warning
    assert found["neighbour"]["warnings"] == []
    assert found["before"] == 1, "only the neighbour's entry: who did not get the lock publishes nothing"
    assert found["first"]["faults"] == 0
    assert (found["later"]["hits"], found["later"]["traces"]) == (1, 0)


@pytest.mark.slow
def test_a_holder_that_dies_is_replaced_by_one_that_waits(tmp_path: Path) -> None:
    waiting = report(run("product_actors.py", tmp_path / "cache", "died"))["waiting"]
    assert sorted(found["traces"] for found in waiting) == [0, 0, 1]
    assert [found for found in waiting if found["warnings"] or found["faults"]] == []


def test_threads_of_one_process_compile_one_key_once(cache_dir: Path) -> None:
    torch.manual_seed(0)
    modules = [torch.nn.Linear(4, 4) for _ in range(8)]
    cached = [
        gearcache.cache_compile(module.forward, config=strict_config(), cache_dir=cache_dir) for module in modules
    ]
    x = torch.randn(2, 4)
    results: dict[int, torch.Tensor] = {}
    start = threading.Barrier(len(modules) * 2)

    def call(number: int) -> None:
        start.wait()
        with torch.no_grad():
            results[number] = cached[number % len(cached)](x)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(modules) * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(threads)
    for number, result in results.items():
        assert torch.equal(result, modules[number % len(modules)](x))
    assert sum(method.stats.compiles for method in cached) == 1


BUSY = """
import sys
from pathlib import Path
from tests.support.store_actors import KEYS, publish, evict, clear, collect, load
root, what = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for turn in range(int(sys.argv[3])):
    if what == "publish":
        publish(root, turn % len(KEYS))
    else:
        (evict, clear, collect)[turn % 3](root, 0)
"""


class Program:
    """A process that says it is ready, and goes on when told; killed at the end at the latest."""

    def __init__(self, script: str, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Program:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def go(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()


def test_readers_see_whole_entries_or_none_while_others_write_evict_and_clear(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    publisher, remover = (Program(BUSY, str(root), what, "60") for what in ("publish", "remove"))
    kept = misses = 0
    with publisher, remover:
        publisher.go()
        remover.go()
        while publisher.process.poll() is None or remover.process.poll() is None:
            for key in KEYS:
                store = DiskStore(Layout(root))
                held = store.use(key)
                found = store.lookup(key, explain=False)
                if isinstance(found, Miss):
                    assert found.reason.value == "absent", found
                    misses += 1
                    continue
                assert found.manifest.payload["blobs"] == list(found.manifest.blobs)
                if held:
                    kept += 1
                    for digest, size in found.manifest.blobs.items():
                        assert len(store.read_blob(digest)) == size
        assert (publisher.process.returncode, remover.process.returncode) == (0, 0)
    assert min(kept, misses) > 20, "the test must meet both"
    assert list(Layout(root).quarantine_folder.iterdir()) == []


#: Does something to the store that begins with `with`, says that it does, and goes on when told.
HOLDER = """
import os, sys
from contextlib import contextmanager
from pathlib import Path
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.remove import deleting
from gearcache.cache.result import Hit
from gearcache.cache.store import DiskStore
layout = Layout(Path(sys.argv[1]))
store = DiskStore(layout)
key = CacheKey("Model.decode", (("a", 1),))

@contextmanager
def using():
    assert store.use(key) and isinstance(store.lookup(key), Hit)
    yield

@contextmanager
def loading():
    loaded = DiskStore(layout)
    assert isinstance(loaded.load(key), Hit)
    yield

ways = {"using": using, "loading": loading, "writing": store.writing, "deleting": lambda: deleting(layout, 1.0)}
with ways[sys.argv[2]]():
    child = os.fork() if "forking" in sys.argv else None
    if child is None:
        print("ready", flush=True)
    if not child:  # this process, or that which it has forked, holds it
        sys.stdin.readline()
    if child == 0:
        os._exit(0)
if child:
    print("ready", flush=True)
    os.waitpid(child, 0)
"""


def one_entry(root: Path) -> Catalog:
    store = DiskStore(Layout(root))
    store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})
    return Catalog(store.layout)


def test_an_entry_that_a_live_process_uses_is_neither_evicted_nor_cleared(tmp_path: Path) -> None:
    catalog = one_entry(tmp_path / "cache")
    entries = catalog.entries()
    with Program(HOLDER, str(tmp_path / "cache"), "using") as user:
        for outcome in (catalog.remove(entries), catalog.prune(max_size=0), catalog.prune(max_age=0)):
            assert (outcome.removed, [entry.name for entry in outcome.in_use]) == ([], [KEY.name])
        (found,) = catalog.users(entries[0])
        assert found.pid == user.process.pid
        assert "python" in found.command
        assert isinstance(DiskStore(catalog.layout).lookup(KEY), Hit)
    assert catalog.users(entries[0]) == []
    assert [entry.name for entry in catalog.remove(entries).removed] == [KEY.name]
    assert list(catalog.layout.blobs()) == []


def test_a_process_that_ends_marks_what_it_used(tmp_path: Path) -> None:
    catalog = one_entry(tmp_path / "cache")
    use = catalog.layout.use(KEY)
    script = """
import os, sys
from pathlib import Path
from gearcache.cache.locks.use import register_use
held = register_use(Path(sys.argv[1]))
os.utime(sys.argv[1], (100, 100))
"""
    subprocess.run([sys.executable, "-c", script, str(use)], check=True)
    assert time.time() - use.stat().st_mtime < 60


def test_an_entry_that_is_loaded_without_a_use_file_is_in_use(tmp_path: Path) -> None:
    catalog = one_entry(tmp_path / "cache")
    store = DiskStore(catalog.layout)
    catalog.layout.use(KEY).unlink()
    assert isinstance(store.load(KEY), Hit)
    assert len(catalog.remove(catalog.entries()).in_use) == 1
    del store
    assert len(catalog.remove(catalog.entries()).removed) == 1


def test_a_forked_child_keeps_the_entry_that_its_parent_loaded(tmp_path: Path) -> None:
    catalog = one_entry(tmp_path / "cache")
    entries = catalog.entries()
    with Program(HOLDER, str(tmp_path / "cache"), "loading", "forking"):
        assert len(catalog.remove(entries).in_use) == 1
    assert len(catalog.remove(entries, wait=20).removed) == 1, "both have ended"


def test_a_child_forked_while_others_write_or_delete_holds_no_lock_of_theirs(tmp_path: Path) -> None:
    catalog = one_entry(tmp_path / "cache")
    catalog.patience = 0.2
    for held in ("writing", "deleting"):
        with Program(HOLDER, str(tmp_path / "cache"), held, "forking"):
            assert catalog.collect().fault is None
            publish(tmp_path / "cache")
    assert len(catalog.remove(catalog.entries()).removed) == 2


def test_a_blob_is_not_collected_between_its_writing_and_its_publishing(tmp_path: Path) -> None:
    store = DiskStore(Layout(tmp_path / "cache"))
    catalog = Catalog(store.layout)
    with store.writing():
        digest = store.put_blob(b"code")
        collector = threading.Thread(target=catalog.collect)
        collector.start()
        time.sleep(0.2)
        store.publish(KEY, {}, {digest: 4}, {})
    collector.join()
    assert store.read_blob(digest) == b"code"


def test_a_blob_of_an_entry_that_goes_stays_for_one_that_comes(tmp_path: Path) -> None:
    """A publisher finds the blob on disk while another process removes the last entry that names it."""
    catalog = one_entry(tmp_path / "cache")
    store = DiskStore(catalog.layout)
    with store.writing():
        digest = store.put_blob(b"code")  # found, not written again
        remover = threading.Thread(target=lambda: catalog.remove(catalog.entries()))
        remover.start()
        time.sleep(0.2)
        store.publish(KEYS[0], {}, {digest: 4}, {})
    remover.join()
    assert [entry.name for entry in catalog.entries()] == [KEYS[0].name]
    assert store.read_blob(digest) == b"code"


@pytest.mark.parametrize("stopped", ["writing", "deleting"])
def test_a_process_that_hangs_in_the_store_stops_nobody_for_ever(tmp_path: Path, stopped: str) -> None:
    catalog = one_entry(tmp_path / "cache")
    catalog.patience = 0.2
    store = DiskStore(catalog.layout, lock_timeout=0.2)
    with Program(HOLDER, str(tmp_path / "cache"), stopped) as held:
        held.process.send_signal(signal.SIGSTOP)
        assert isinstance(store.lookup(KEY), Hit)  # readers wait for nobody
        if stopped == "writing":
            publish(tmp_path / "cache")  # nor do other writers
            assert catalog.collect().fault is not None
            assert [type(fault) for fault in catalog.remove(catalog.entries()).faults] == [PublishError]
        else:
            with pytest.raises(PublishError, match="deleting entries since"):
                store.publish(KEYS[0], {}, {}, {})
    store.publish(KEYS[0], {}, {}, {})
    assert catalog.collect().fault is None
