"""What lies in the place of a file of the cache, a pipe, a link or a folder, hangs and harms nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Puts something else in the place of one file after another, and does with the cache whatever can be done.
EVERYTHING = """
import os, shutil, sys
from pathlib import Path
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.store import DiskStore
from gearcache.cache.layout import Layout
from gearcache.cache.limits import Limits
from gearcache.cache.signatures.signature import Signer
from gearcache.cache.admin.packed.bundle import write_bundle, take_bundle
from gearcache.readable.joined import joined
from gearcache.cache.admin.catalog import Catalog, Removal
from gearcache.cache.admin.counts import Counts, reset_counts
from gearcache.cache.admin.health import check_health
from gearcache.cache.admin.tally import count_misses, misses
from gearcache.cache.admin.verify import verify
from gearcache.errors import CacheError
from gearcache.ge_cache.npu.compiled_graphs import graph_folder

place, kinds = Path(sys.argv[1]), sys.argv[2:]
pristine, root, key_file, bundle = (place / name for name in ("pristine", "cache", "key", "bundle.tar"))
key_file.write_bytes(b"k" * 32)
key_file.chmod(0o600)
key, other = (CacheKey("Model.decode", (("a", number),)) for number in (1, 2))


def store():
    return DiskStore(Layout(root), lock_timeout=0, signer=Signer(key_file), limits=Limits(max_size=1 << 40))


def try_all(*works):
    for work in works:
        try:
            work()
        except (CacheError, OSError) as error:
            pass


def work():
    layout, catalog = Layout(root), Catalog(Layout(root), patience=0)
    disk = store()

    def publish():
        with disk.exclusive(other):
            disk.publish(other, {}, {disk.put_blob(b"other"): 5}, {})
            disk.keep_limits(other)

    def compile_graph():
        with graph_folder(layout.manifest(key).parent / "ge", "graph", 0):
            pass

    try_all(
        lambda: disk.load(key), lambda: disk.count_load(key), lambda: disk.lookup(other), publish, compile_graph,
        lambda: [disk.read_blob(digest) for digest in disk.lookup(key).manifest.blobs],
        lambda: count_misses(layout, "Model.decode", ["absent"]), lambda: misses(layout),
        lambda: reset_counts(layout, catalog.entries(), 1.0), lambda: Counts(layout).misses(),
        lambda: check_health(layout, key_file),
        lambda: write_bundle(layout, catalog.entries(), place / "out.tar"), lambda: take_bundle(layout, bundle, joined),
        lambda: verify(layout), lambda: verify(layout, repair=True), catalog.quarantined, catalog.other_formats,
        lambda: catalog.prune(max_size=0), catalog.collect, lambda: catalog.remove(catalog.entries()),
        lambda: catalog.clear_quarantine(Removal()),
    )


disk = store()
with disk.exclusive(key):
    disk.publish(key, {}, {disk.put_blob(b"code"): 4}, {"folders": True})
with graph_folder(disk.layout.manifest(key).parent / "ge", "graph", 0) as folder:
    (folder / "graph.om").write_bytes(b"graph")
count_misses(disk.layout, "Model.decode", ["absent"])
Catalog(disk.layout).entries()
write_bundle(disk.layout, Catalog(disk.layout).entries(), bundle)
damaged = disk.put_blob(b"damaged")
disk.layout.blob(damaged).write_bytes(b"wrong")
try_all(lambda: disk.read_blob(damaged))
del disk
shutil.move(root, pristine)
names = sorted(str(path.relative_to(pristine)) for path in pristine.rglob("*") if path.is_file())
for kind, name in [(kind, name) for kind in kinds for name in [*names, str(key_file), str(bundle)]]:
    print(kind, name, flush=True)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(pristine, root)
    path = root / name  # the last two are absolute
    kept = path.read_bytes()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    work()
    if path in (key_file, bundle):
        path.rmdir() if kind == "folder" else path.unlink()
        path.write_bytes(kept)
        path.chmod(0o600)
"""


def test_nothing_in_the_place_of_a_file_hangs_whoever_works_with_the_cache(tmp_path: Path) -> None:
    kinds = ["pipe", "link"]
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING, str(tmp_path), *kinds],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    tried = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert {kind for kind, _ in tried} == set(kinds)
    names = {Path(name).name for _, name in tried}
    assert names >= {"manifest.msgpack", "use", "store.lock", "absent", "published", "lock", "cache.db", "sums.msgpack"}
    assert len(names) > 14
    assert len(tried) == 2 * len({name for _, name in tried})
