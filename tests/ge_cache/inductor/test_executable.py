"""A cache where nothing may be executed (a mount with `noexec`): its entries are loaded all the same, once for each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.product.test_disk import needs_mount
from tests.support.fork_server import run_code
from tests.support.source_tree import ROOT

#: Two forks run it, cold and relaunched; then `doctor` tells what it finds.
PROGRAM = """
import contextlib, gc, json, os, sys
from tests.support.mounted import mount_here
mount_here(sys.argv[1], "noexec")
cache = sys.argv[1] + "/cache"
for _ in range(2):
    if os.fork() == 0:
        break
    assert os.wait()[1] == 0
else:
    from gearcache.cli import main
    os.dup2(2, 1)
    sys.argv[1:] = ["doctor", "--cache-dir", cache]
    with contextlib.suppress(SystemExit):
        main()
    sys.exit()
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

kept = [one(cache) for _ in range(3)]
of_three = copies()
for _ in range(3):  # each takes the runner of the one before
    kept.clear()
    gc.collect()
    kept.append(one(cache))
stats = kept[0].stats
print(json.dumps([stats.hits, stats.compiles, stats.faults, of_three, copies()]))
"""


@pytest.mark.slow
@needs_mount
def test_entries_are_loaded_from_where_nothing_may_be_executed(tmp_path: Path) -> None:
    environ = {**os.environ, "GEARCACHE_PROGRESS": "0"}
    done = run_code(PROGRAM, str(tmp_path), environ=environ, cwd=ROOT, compiles=True, timeout=600)
    assert done.returncode == 0, done.stderr
    cold, warm = map(json.loads, done.stdout.splitlines())
    assert cold == [1, 0, 0, 1, 1], "the last of its instances has loaded what the first one compiled"
    assert warm == [1, 0, 0, 1, 1]
    assert "is mounted noexec: each process loads compiled code from copies of its own in memory" in done.stderr
