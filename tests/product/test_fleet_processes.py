"""Real processes of two hosts, cold at once, and a real Redis: one compiles, and one of a host asks for all of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from gearcache.cache.remote.engines.redis_server import RedisRemote
from tests.cache.remote.real_engines import ENGINES
from tests.support.source_tree import ROOT

HOSTS, PROCESSES = 2, 3
CODE = """
import json, sys, time, torch, gearcache
from tests.scenarios.geared import Net
torch.manual_seed(0)
net = Net()
config = gearcache.CompilerConfig(backend="eager", strict=True)
gears = {"x": {0: [2, 4]}}
cached = gearcache.cache_compile(net.encode, config=config, gears=gears, cache_dir=sys.argv[1], remotes=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
x = torch.randn(4, 4)
right = torch.equal(cached(x)[0], net.encode(x)[0])
print(json.dumps({"right": right, "compiles": cached.stats.compiles, "traces": cached.stats.traces}))
"""


@pytest.mark.slow
def test_of_all_processes_of_all_hosts_one_compiles(tmp_path: Path) -> None:
    with ENGINES["redis"]() as remote, contextlib.ExitStack() as ended:
        assert isinstance(remote, RedisRemote)
        processes = [
            _start(tmp_path / f"host{host}", f"{remote.label}?unsigned=1")
            for host in range(HOSTS)
            for _ in range(PROCESSES)
        ]
        for process in processes:
            ended.enter_context(process)
            ended.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        client = Redis.from_url(f"{remote.label}")
        client.config_resetstat()
        reports: list[dict[str, Any]] = []
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            found, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors[-2000:]
            reports.append(json.loads(found.splitlines()[-1]))
        assert all(report["right"] for report in reports)
        assert sorted(report["compiles"] for report in reports) == [0, 0, 0, 0, 0, 2]
        calls = {name: stat["calls"] for name, stat in client.info("commandstats").items()}
        # One process of each host took part, and one of them sent what it compiled; blobs and the manifest came once.
        assert calls["cmdstat_set"] <= 6
        blobs = len(list((tmp_path / "host0" / "v4" / "blobs").glob("*/*")))
        assert blobs == len(list((tmp_path / "host1" / "v4" / "blobs").glob("*/*"))) >= 1
        assert calls["cmdstat_getrange"] <= 2 * (blobs + 1) + 4


def _start(root: Path, url: str) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", CODE, str(root), url],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
