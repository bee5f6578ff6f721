"""Simulates many cold hosts on one key: who compiles, how long the others wait, and the requests to the tier.

    python -m benchmarks.fleet [--engines redis folder bucket] [--hosts 1000] [--compile 20] [--cases plain faults ...]

Engines are real servers started here. The protocol is the product's own code (`gearcache.serving.fleet.remote_entry`)
with real entries and blobs. Hosts are threads with one cache folder each, and the compile is a sleep. Only one
process of a host uses a tier, under the lock of the key, which `tests/product/test_fleet_processes.py` shows with
real processes; so each thread stands for all processes of its host. Needs the extras of `dev`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec.structs import replace

CASES = ("plain", "faults", "latency", "killed", "no lease")
FAULTS = 0.05
LATENCY = 0.04
#: Objects are not written to the disk of this host: a fleet has many disks, this host only one.
ROOT = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: PTH112


class Watched:
    """An engine that counts its requests, and delays or fails them if the case says so."""

    def __init__(self, remote: Any, case: str, seed: int) -> None:
        self._remote = remote
        self._case = case
        self._random = random.Random(seed)
        self.label = remote.label
        self.creates = "no" if case == "no lease" else remote.creates
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def _before(self, what: str, name: str) -> None:
        from gearcache.cache.remote.engines.protocol import RemoteError

        kind = name.split("/")[1] if "/" in name else name
        self.requests[f"{what} {kind}"] += 1
        if self._case == "latency":
            time.sleep(self._random.lognormvariate(0, 0.3) * LATENCY)
        if self._case == "faults" and self._random.random() < FAULTS:
            raise RemoteError(self.label, "a fault of the benchmark")

    def get(self, name: str, limit: int, deadline: Any) -> bytes | None:
        self._before("get", name)
        data: bytes | None = self._remote.get(name, limit, deadline)
        self.bytes["fetched"] += len(data or b"")
        return data

    def size(self, name: str, deadline: Any) -> int | None:
        self._before("size", name)
        return self._remote.size(name, deadline)  # type: ignore[no-any-return]

    def put(self, name: str, data: bytes, deadline: Any, **how: Any) -> bool:
        self._before("put", name)
        self.bytes["sent"] += len(data)
        return self._remote.put(name, data, deadline, **how)  # type: ignore[no-any-return]

    def names(self, prefix: str, limit: int, deadline: Any) -> list[str]:
        self._before("names", prefix)
        return self._remote.names(prefix, limit, deadline)  # type: ignore[no-any-return]

    def delete(self, name: str, deadline: Any) -> None:
        self._before("delete", name)
        self._remote.delete(name, deadline)


class Seed:
    """The entry that every host would compile, with blobs of the size of real gears."""

    def __init__(self, blobs: int, size: int) -> None:
        import torch

        import gearcache
        from gearcache.cache.layout import Layout
        from gearcache.cache.manifest import decode_manifest
        from gearcache.guards.dispatch.stored.packed_entry import entry_from_plain

        class Net(torch.nn.Module):
            def run(self, x: torch.Tensor) -> torch.Tensor:
                return x * 2 + 1

        with tempfile.TemporaryDirectory() as root:
            gears = {"x": {0: list(range(2, 2 + blobs))}}
            cached = gearcache.cache_compile(
                Net().run, config=gearcache.CompilerConfig(backend="eager"), gears=gears, cache_dir=root, remotes=""
            )
            cached(torch.randn(2, 4))
            self.key = cached._tried.entry.key  # type: ignore[union-attr]
            (path,) = Layout(Path(root)).entries()
            variants = entry_from_plain(decode_manifest(path.read_bytes(), path).payload)
        draw = random.Random(0)
        self.blobs = [draw.randbytes(size) for _ in range(blobs)]
        self._variants = variants

    def store(self, entry: Any) -> None:
        """Store the result of a compile."""
        with entry.store.writing():
            digests = [entry.store.put_blob(data) for data in self.blobs]
            variant = self._variants[0]
            gears = [
                replace(gear, blobs={"object": digest}) for gear, digest in zip(variant.gears, digests, strict=True)
            ]
            entry.adopt([replace(variant, gears=gears)], [])


class Host:
    """One host of the fleet."""

    def __init__(self, number: int, seed: Seed, url: str, root: Path, options: argparse.Namespace) -> None:
        from gearcache.cache.layout import Layout
        from gearcache.cache.remote.engines.retrying import Patient
        from gearcache.options import resolve_settings
        from gearcache.serving.find.entry import Entry
        from gearcache.serving.fleet.remote_entry import RemoteEntry
        from gearcache.telemetry.counters import Counters
        from gearcache.telemetry.history import History

        settings = replace(resolve_settings(None, has_gears=True), remotes=url)
        history = History("Net.run", seed.key.name, str(root), Counters(), strict=False)
        self.entry = Entry(seed.key, Layout(root / f"host{number}"), settings, history)
        self.remote = RemoteEntry(self.entry, history, strict=False, lock_timeout=1800.0)
        (tier,) = self.remote._tiers
        self.watched = Watched(tier.url.open(), options.case, number)
        tier._remote = Patient(self.watched)  # type: ignore[arg-type]
        self._seed = seed
        self._options = options
        self.compiled = self.killed = False
        self.seconds = 0.0

    def run(self) -> None:
        """Get the entry, or compile it."""
        from gearcache.serving.fleet.tier_fetch import Wanted

        time.sleep(random.uniform(0, self._options.spread))
        begin = time.monotonic()
        wanted = Wanted(lambda _: True, lambda _: True, bool, lambda _: False, "all gears")
        with self.entry.exclusive():
            if not self.remote.obtain(wanted):
                self._compile()
        self.seconds = time.monotonic() - begin

    def _compile(self) -> None:
        turn = self.remote._turn
        if self._options.case == "killed" and turn is not None and _first_dies(self._options):
            self.killed = True
            turn._lease._ended.set()  # its beats end, and no code releases the lease
            return
        self.compiled = True
        time.sleep(self._options.compile)
        self._seed.store(self.entry)
        self.remote.send()
        self.remote.give_up()


def _first_dies(options: argparse.Namespace) -> bool:
    """Whether this is the first host to compile, among all processes of the benchmark."""
    try:
        os.close(os.open(Path(options.folder) / "died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def work(options: argparse.Namespace) -> dict[str, Any]:
    """Act as one process with its share of the hosts."""
    logging.disable(logging.CRITICAL)
    threading.stack_size(512 << 10)
    seed = Seed(options.blobs, options.size)
    root = Path(options.folder) / f"work{options.worker}"
    hosts = [Host(number, seed, options.url, root, options) for number in range(*options.range)]
    (Path(options.folder) / f"ready{options.worker}").touch()
    while not (Path(options.folder) / "go").exists():
        time.sleep(0.01)
    threads = [threading.Thread(target=host.run) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    living = [host for host in hosts if not host.killed]
    return {
        "compiles": sum(host.compiled for host in hosts),
        "seconds": [host.seconds for host in living],
        "requests": [dict(host.watched.requests) for host in living],
        "compiled": [host.compiled for host in living],
        "fetched": sum(host.watched.bytes["fetched"] for host in hosts),
        "sent": sum(host.watched.bytes["sent"] for host in hosts),
    }


def fleet(engine: str, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one case on one engine."""
    from tests.cache.remote.real_engines import ENGINES, url_of

    with tempfile.TemporaryDirectory(dir=ROOT, prefix="gearcache-fleet-") as folder, ENGINES[engine]() as remote:
        url = url_of(remote)
        _empty(remote)
        step = -(-options.hosts // options.processes)
        workers = []
        for worker in range(options.processes):
            given = {
                **vars(options),
                "case": case,
                "folder": folder,
                "url": url,
                "worker": worker,
                "range": [worker * step, min(options.hosts, (worker + 1) * step)],
            }
            command = [sys.executable, "-m", "benchmarks.fleet", "--work", json.dumps(given)]
            workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        while not all((Path(folder) / f"ready{worker}").exists() for worker in range(options.processes)):
            if any(worker.poll() for worker in workers):
                raise SystemExit("a process of the fleet failed")
            time.sleep(0.05)
        (Path(folder) / "go").touch()
        parts = [json.loads(worker.communicate()[0].splitlines()[-1]) for worker in workers]
    return summed(engine, case, parts, options)


def _empty(remote: Any) -> None:
    """Delete what an earlier case has stored: all cases use the same server of buckets."""
    from gearcache.cache.remote.engines.protocol import Deadline
    from gearcache.cache.remote.names import TOP

    for name in remote.names(f"{TOP}/", 1 << 20, Deadline.after(60.0)):
        remote.delete(name, Deadline.after(60.0))


def summed(engine: str, case: str, parts: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Return one row."""
    seconds = sorted(value for part in parts for value in part["seconds"])
    rest, polls = [], []
    for part in parts:
        for requests, compiled in zip(part["requests"], part["compiled"], strict=True):
            # While a host waits it looks at what is stored, and now and then at the lease; the first look does not
            # count.
            polling = requests.get("get leases", 0) + requests.get("names entries", 0) - 1
            polls.append(polling)
            if not compiled:
                rest.append(sum(requests.values()) - polling)
    return {
        "engine": engine,
        "case": case,
        "hosts": options.hosts,
        "compiles": sum(part["compiles"] for part in parts),
        "p50": statistics.median(seconds),
        "p99": seconds[int(0.99 * (len(seconds) - 1))],
        "longest": seconds[-1],
        "requests": statistics.mean(rest) if rest else 0.0,
        "most_requests": max(rest, default=0),
        "polls": statistics.mean(polls),
        "fetched": sum(part["fetched"] for part in parts) / options.hosts,
        "sent": sum(part["sent"] for part in parts),
    }


def main() -> None:
    """Run the cases, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--engines", nargs="+", default=["redis", "folder", "bucket"])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2, help="that the hosts are threads of")
    parser.add_argument("--compile", type=float, default=20.0, help="seconds that a compile takes")
    parser.add_argument("--spread", type=float, default=5.0, help="seconds within which the hosts begin")
    parser.add_argument("--blobs", type=int, default=8)
    parser.add_argument("--size", type=int, default=100_000, help="bytes of a blob")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(argparse.Namespace(**json.loads(options.work)))))
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs each request to the server of buckets
    rows = []
    for engine in options.engines:
        for case in options.cases:
            row = fleet(engine, case, options)
            rows.append(row)
            if not options.json:
                print(
                    f"{engine:8} {case:9} {row['hosts']:5} hosts: {row['compiles']} compiles; waited {row['p50']:.1f} s"
                    f" (p50), {row['p99']:.1f} (p99), {row['longest']:.1f} (longest); requests of a host that fetched "
                    f"{row['requests']:.1f}, at most {row['most_requests']}, and {row['polls']:.1f} looks meanwhile; "
                    f"{row['fetched'] / 1e6:.2f} MB fetched a host, {row['sent'] / 1e6:.2f} MB sent in all",
                    flush=True,
                )
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
