"""Real processes of two hosts, cold at once, and a real Redis: one compiles, and one of a host asks for all of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.remote.engines.redis_server import RedisRemote
from tests.cache.remote.real_engines import ENGINES
from tests.support.relaunch import run_python

HOSTS, PROCESSES = 2, 3
CODE = """
import json, sys, time, torch, gearcache
from pathlib import Path
from tests.scenarios.geared import Net
torch.manual_seed(0)
net = Net()
config = gearcache.CompilerConfig(backend="eager", strict=True)
gears = {"x": {0: [2, 4]}}
cached = gearcache.cache_compile(net.encode, config=config, gears=gears, cache_dir=sys.argv[1], remotes=sys.argv[2])
Path(sys.argv[3]).touch()
while not Path(sys.argv[4]).exists():
    time.sleep(0.01)
x = torch.randn(4, 4)
right = torch.equal(cached(x)[0], net.encode(x)[0])
print(json.dumps({"right": right, "compiles": cached.stats.compiles, "traces": cached.stats.traces}))
"""


@pytest.mark.slow
def test_of_all_processes_of_all_hosts_one_compiles(tmp_path: Path) -> None:
    start = tmp_path / "start"
    with ENGINES["redis"]() as remote, ThreadPoolExecutor(HOSTS * PROCESSES) as pool:
        assert isinstance(remote, RedisRemote)
        url = f"{remote.label}?unsigned=1"
        run_python("print(0)", compiles=True)  # starts the server that these are forks of
        places = [
            (tmp_path / f"host{host}", tmp_path / f"ready{host}{i}") for host in range(HOSTS) for i in range(PROCESSES)
        ]
        running = [
            pool.submit(run_python, CODE, str(root), url, str(ready), str(start), compiles=True)
            for root, ready in places
        ]
        try:
            while not all(ready.exists() for _, ready in places):
                assert not any(one.done() and one.exception() for one in running), running
                time.sleep(0.02)
            from redis import Redis

            client = Redis.from_url(f"{remote.label}")
            client.config_resetstat()
        finally:
            start.touch()
        reports: list[dict[str, Any]] = [one.result() for one in running]
        assert all(report["right"] for report in reports)
        assert sorted(report["compiles"] for report in reports) == [0, 0, 0, 0, 0, 2]
        calls = {name: stat["calls"] for name, stat in client.info("commandstats").items()}
        # One process of each host took part, and one of them sent what it compiled; blobs and the manifest came once.
        assert calls["cmdstat_set"] <= 6
        blobs = len(list((tmp_path / "host0" / "v7" / "blobs").glob("*/*")))
        assert blobs == len(list((tmp_path / "host1" / "v7" / "blobs").glob("*/*"))) >= 1
        assert calls["cmdstat_getrange"] <= 2 * (blobs + 1) + 4
