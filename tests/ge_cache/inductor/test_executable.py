"""A cache where nothing may be executed (a mount with `noexec`): its entries are loaded all the same, once for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gearcache.ge_cache.inductor import executable
from tests.product.test_disk import needs_mount
from tests.support.source_tree import ROOT

PROGRAM = """
import gc, json, sys
import torch, gearcache

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))
    def run(self, x):
        return x * self.weight

def one(root):
    net, x = Net(), torch.randn(2, 4)
    config = gearcache.CompilerConfig(backend="inductor", strict=True)
    cached = gearcache.cache_compile(net.run, config=config, cache_dir=root)
    with torch.no_grad():
        assert torch.equal(cached(x), net.run(x))
    return cached

def copies():
    return len({line.split()[4] for line in open("/proc/self/maps") if "memfd:gearcache" in line})

kept = [one(sys.argv[1]) for _ in range(3)]
of_three = copies()
for _ in range(3):  # each takes the runner of the one before
    kept.clear()
    gc.collect()
    kept.append(one(sys.argv[1]))
stats = kept[0].stats
print(json.dumps([stats.hits, stats.compiles, stats.faults, of_three, copies()]))
"""
SCRIPT = """
set -e
mount -t tmpfs -o noexec tmpfs "$1"
"$2" -c "$3" "$1/cache"
"$2" -c "$3" "$1/cache"
"$2" -m gearcache doctor --cache-dir "$1/cache" >&2 || true
"""


@pytest.mark.slow
@needs_mount
def test_entries_are_loaded_from_where_nothing_may_be_executed(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", SCRIPT, "sh", str(tmp_path), sys.executable, PROGRAM],
        cwd=ROOT,
        env={**os.environ, "GEARCACHE_PROGRESS": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cold, warm = map(json.loads, done.stdout.splitlines())
    assert cold == [1, 0, 0, 1, 1], "the last of its instances has loaded what the first one compiled"
    assert warm == [1, 0, 0, 1, 1]
    assert "is mounted noexec: each process loads compiled code from copies of its own in memory" in done.stderr


def test_equal_objects_have_one_copy_and_a_closed_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(executable, "_copies", made)
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one, two):
        path.write_bytes(b"object")
    names = [executable.name_of_copy(str(path)) for path in (one, two)]
    assert [Path(name).read_bytes() for name in names] == [b"object", b"object"]
    assert len({os.stat(name).st_ino for name in names}) == len(made) == 1
    ((descriptor, _),) = made.values()
    os.close(descriptor)
    other = os.open(os.devnull, os.O_RDONLY)  # has the number of the copy now
    assert Path(executable.name_of_copy(str(one))).read_bytes() == b"object"
    os.close(other)
    monkeypatch.delattr(executable.os, "memfd_create")
    two.write_bytes(b"another")
    assert Path(executable.name_of_copy(str(two))).read_bytes() == b"another"
    for descriptor, _ in made.values():
        os.close(descriptor)
