"""Processes that cache a method for real, with the `eager` backend, to be killed, stopped and started by the dozen.

`python tests/support/product_actors.py <root> <scenario>` prints a report as JSON. Torch is imported once, and each
process is a fork of that one, so that a hundred of them take seconds.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch._dynamo.convert_frame

import gearcache
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.verify import verify
from gearcache.cache.layout import Layout
from gearcache.ge_cache.eager import EagerBackend

GEARS = {"input": {0: [2, 3]}}


def serve(
    root: Path, strict: bool = True, width: int = 4, then: Callable[[dict[str, Any]], object] | None = None
) -> dict[str, Any]:
    """One relaunch, as a server does it: build the model, call its cached method, compare with eager.

    `then` gets the report while the method is loaded still.
    """
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gearcache").addHandler(handler)
    torch.manual_seed(0)
    module = torch.nn.Linear(width, width)
    config = gearcache.CompilerConfig(backend="eager", strict=strict)
    cached = gearcache.cache_compile(module.forward, config=config, cache_dir=root, gears=GEARS)
    with torch.no_grad():
        for size in (2, 3):
            x = torch.randn(size, width)
            assert torch.equal(cached(x), module(x))
    stats = cached.stats
    report = {
        "hits": stats.hits,
        "traces": stats.traces,
        "compiles": stats.compiles,
        "faults": stats.faults,
        "reasons": list(stats.miss_reasons),
        "warnings": warnings,
    }
    if then is not None:
        then(report)
    return report


class Process:
    """A forked process; its report, or what it died of, comes back through a file."""

    def __init__(self, work: Callable[[], dict[str, Any]], report: Path) -> None:
        self._report = report
        report.unlink(missing_ok=True)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                outcome = work()
            except BaseException as error:
                outcome = {"error": f"{type(error).__name__}: {error}"}
            report.write_text(json.dumps(outcome))
            os._exit(0)

    def result(self) -> dict[str, Any]:
        """Wait for the report; empty when the process was killed before."""
        os.waitpid(self.pid, 0)
        return json.loads(self._report.read_text()) if self._report.exists() else {}

    def kill(self) -> dict[str, Any]:
        """Kill -9, and wait."""
        os.kill(self.pid, signal.SIGKILL)
        return self.result()

    def wait_until_stopped(self) -> None:
        """Wait for the process to stop itself."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status


def killed(root: Path, kills: int) -> dict[str, Any]:
    """Kill processes that trace, compile, publish and load, at random moments; each next one does with what is left."""
    report = root.with_name("report.json")
    begin = time.monotonic()
    Process(lambda: serve(root.with_name("timing")), report).result()
    duration = time.monotonic() - begin
    chance = random.Random(5)
    done = []
    died = 0
    for turn in range(kills):
        if turn % 4 == 0:
            catalog = Catalog(Layout(root))
            catalog.remove(catalog.entries())
        process = Process(lambda: serve(root), report)
        time.sleep(chance.uniform(0, duration))
        result = process.kill()
        if result:
            done.append(result)
        else:
            died += 1
    last = Process(lambda: serve(root), report).result()
    assert Catalog(Layout(root)).collect().fault is None
    after = Process(lambda: serve(root), report).result()
    errors = [result["error"] for result in [*done, last, after] if "error" in result]
    faults = [f"{fault.path}: {fault.reason}" for fault in verify(Layout(root)).faults]
    return {"died": died, "errors": errors, "faults": faults, "last": last, "after": after}


def together(root: Path, count: int) -> dict[str, Any]:
    """Start many processes with one cold key at once."""
    ready, go = os.pipe()

    def start() -> dict[str, Any]:
        os.close(go)
        os.read(ready, 1)  # ends for all when the parent closes its side
        return serve(root)

    processes = [Process(start, root.with_name(f"report{number}.json")) for number in range(count)]
    os.close(go)
    return {"reports": [process.result() for process in processes]}


def hung(root: Path) -> dict[str, Any]:
    """A process stops for ever while it compiles; one comes and finds the key locked; then the first goes on."""
    holder = Process(lambda: serve_stopping(root, signal.SIGSTOP), root.with_name("holder.json"))
    holder.wait_until_stopped()
    os.environ["GEARCACHE_LOCK_TIMEOUT"] = "1"
    other = Process(lambda: serve(root, strict=False), root.with_name("other.json")).result()
    neighbour = Process(lambda: serve(root, width=5), root.with_name("neighbour.json")).result()
    before = len(Catalog(Layout(root)).entries())
    os.kill(holder.pid, signal.SIGCONT)
    first = holder.result()
    later = Process(lambda: serve(root), root.with_name("later.json")).result()
    return {"other": other, "neighbour": neighbour, "before": before, "first": first, "later": later}


def died(root: Path) -> dict[str, Any]:
    """A process dies while it compiles and others wait for it."""
    holder = Process(lambda: serve_stopping(root, signal.SIGSTOP), root.with_name("holder.json"))
    holder.wait_until_stopped()
    waiting = [Process(lambda: serve(root), root.with_name(f"waiting{number}.json")) for number in range(3)]
    time.sleep(1.0)
    holder.kill()
    return {"waiting": [process.result() for process in waiting]}


def full(root: Path) -> dict[str, Any]:
    """A disk that fills up between two models, and has space again later."""
    serve_in_memory(lambda: serve(root, width=5))
    filler = root.parent / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 1024)
    found = {
        "full": serve_in_memory(lambda: serve(root, strict=False)),
        "neighbour": serve_in_memory(lambda: serve(root, width=5)),
    }
    leftovers = Catalog(Layout(root)).collect(dry_run=True).leftovers
    filler.unlink()
    return {
        **found,
        "sound": verify(Layout(root)).is_sound,
        "leftovers": [str(path) for path in leftovers if path.is_file()],
        "freed": serve_in_memory(lambda: serve(root)),
        "later": serve_in_memory(lambda: serve(root)),
    }


def nowhere(root: Path) -> dict[str, Any]:
    """The one disk for cache, working folder and temporary files has no byte left."""

    def work() -> dict[str, Any]:
        os.chdir(root.parent)
        os.environ["TMPDIR"] = tempfile.tempdir = str(root.parent)
        return serve(root, strict=False)

    (root.parent / "filler").touch()
    with (root.parent / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 1024)
    return serve_in_memory(work)


def read_only(root: Path) -> dict[str, Any]:
    """A cache that was filled, and is mounted read-only now."""
    serve_in_memory(lambda: serve(root))
    subprocess.run(["mount", "-o", "remount,ro", str(root.parent)], check=True)
    return {
        "hit": serve_in_memory(lambda: serve(root)),
        "miss": serve_in_memory(lambda: serve(root, strict=False, width=5)),
        "faults": [str(fault.path) for fault in verify(Layout(root)).faults],
    }


def serve_in_memory(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run in a process whose report needs no disk that may be full."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        return Process(work, Path(folder) / "report.json").result()


def serve_stopping(root: Path, which: signal.Signals) -> dict[str, Any]:
    """Serve, but send this process a signal when the first gear is compiled."""
    compile_gear = EagerBackend.compile

    def stop(self: EagerBackend, *arguments: Any) -> Any:
        EagerBackend.compile = compile_gear  # type: ignore[method-assign]
        os.kill(os.getpid(), which)
        return compile_gear(self, *arguments)

    EagerBackend.compile = stop  # type: ignore[method-assign]
    return serve(root)


def main() -> None:
    """Run what the command line names, and print the report."""
    torch.set_num_threads(1)
    root, scenario, *rest = sys.argv[1:]
    scenarios: dict[str, Callable[..., dict[str, Any]]] = {
        "killed": killed,
        "together": together,
        "hung": hung,
        "died": died,
        "full": full,
        "nowhere": nowhere,
        "read_only": read_only,
        "serve": lambda path: serve(path, strict=False),
    }
    print(json.dumps(scenarios[scenario](Path(root), *map(int, rest))))


if __name__ == "__main__":
    main()
