"""Runs one contestant in a fresh process with its own caches, and measures its memory."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_POLL_SECONDS = 0.05


class ContestantFailed(Exception):
    """A contestant ended with an error; the message ends with its last lines."""


@dataclass(frozen=True)
class Peak:
    """The most memory that one process held, in MB."""

    program: str
    megabytes: float


@dataclass
class Outcome:
    """The report of a contestant, its processor time, and the peaks of its own process and of its child processes."""

    report: dict[str, Any]
    processor_seconds: float
    own: Peak
    others: list[Peak]

    def worker(self) -> Peak | None:
        """Return the largest Python process that the contestant started."""
        workers = [peak for peak in self.others if peak.program.startswith(("python", "pt_"))]
        return max(workers, key=lambda peak: peak.megabytes, default=None)

    def total(self) -> float:
        """Return the sum of the peaks of all its Python processes: an upper bound of their memory at any moment."""
        others = [peak for peak in self.others if peak.program.startswith(("python", "pt_"))]
        return self.own.megabytes + sum(peak.megabytes for peak in others)


@dataclass
class Session:
    """One run of the benchmarks: its options, its folder, and the results so far."""

    options: argparse.Namespace
    folder: Path
    _known: dict[str, Outcome | ContestantFailed] = field(default_factory=dict)
    _homes: dict[str, int] = field(default_factory=dict)

    def once(self, name: str, work: Callable[[], Outcome]) -> Outcome:
        """Return the first result of `work`: sections share expensive contestants."""
        if name not in self._known:
            begin = time.perf_counter()
            print(f"benchmarks: {name} ...", end="", file=sys.stderr, flush=True)
            try:
                outcome = self._known[name] = work()
            except ContestantFailed as error:
                self._known[name] = error
                print(f" failed: {error}", file=sys.stderr, flush=True)
            else:
                spent = time.perf_counter() - begin
                print(f" {spent:.1f} s{_figures(outcome)}", file=sys.stderr, flush=True)
        found = self._known[name]
        if isinstance(found, ContestantFailed):
            raise found
        return found

    def run(self, name: str, target: str, order: dict[str, Any], *, home: str, timeout: float = 1200) -> Outcome:
        """Run `module:function` on an order in a fresh process whose caches are in the folder `home`, once."""
        # Short, without spaces: Inductor puts paths into compiler command lines, and sockets into the temporary folder.
        folder = self.folder / str(self._homes.setdefault(home, len(self._homes)))
        return self.once(name, lambda: run_fresh(target, order, folder, timeout))


def _figures(outcome: Outcome) -> str:
    numbers = {name: value for name, value in outcome.report.items() if isinstance(value, float)}
    numbers["processor"] = outcome.processor_seconds
    return "".join(f", {name} {value:.4g}" for name, value in numbers.items())


def run_fresh(target: str, order: dict[str, Any], home: Path, timeout: float) -> Outcome:
    """Run `module:function` on an order in a fresh interpreter; `ContestantFailed` if it ends with an error."""
    # Inductor keeps precompiled headers in the temporary folder, wherever its other files are.
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gearcache-bench-") as folder:
        report = Path(folder) / "report.json"
        order_file = Path(folder) / "order.json"
        order_file.write_text(json.dumps({"target": target, "order": order, "report": str(report)}))
        errors = Path(folder) / "stderr"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "TMPDIR": str(home / "tmp"),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
            "TRITON_CACHE_DIR": str(home / "triton"),
            "TORCHAIR_CACHE_HOME": str(home / "gearcache"),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        # Users import compiled modules: without this each process would compile our sources again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-c", "from benchmarks._process import child; child()", str(order_file)]
        with errors.open("wb") as stream:
            process = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream)
            watch = _MemoryWatch(process.pid)
            watch.start()
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise ContestantFailed(f"`{target}` took more than {timeout:.0f} s") from None
            finally:
                watch.stop()
        if code != 0:
            tail = errors.read_text(errors="replace").strip().splitlines()[-12:]
            raise ContestantFailed(f"`{target}` ended with code {code}:\n" + "\n".join(tail))
        found = json.loads(report.read_text())
    return Outcome(found["result"], found["processor"], Peak("python", found["peak"]), watch.others())


def child() -> None:
    """Act as the fresh process: execute the order in the file named by the first argument."""
    ordered = json.loads(Path(sys.argv[1]).read_text())
    module, _, name = ordered["target"].partition(":")
    result = getattr(importlib.import_module(module), name)(ordered["order"])
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in used)
    found = {"result": result, "peak": peak_megabytes("self"), "processor": seconds}
    Path(ordered["report"]).write_text(json.dumps(found))


def peak_megabytes(process: int | str) -> float:
    """Return the largest resident size that a process has had; 0.0 if it has ended."""
    return _status(process).get("VmHWM", 0.0)


def resident() -> dict[str, float]:
    """Return this process's resident memory in MB: all of it, and the part that no other process shares."""
    sizes: dict[str, float] = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = float(rest.split()[0]) / 1024
    return {"all": sizes["Rss"], "private": sizes["Private_Clean"] + sizes["Private_Dirty"]}


def _status(process: int | str) -> dict[str, float]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines if line.startswith(("VmHWM", "VmRSS")))
    return {name: float(rest.split()[0]) / 1024 for name, _, rest in pairs}


class _MemoryWatch(threading.Thread):
    """Polls all descendants of a process; the kernel keeps the peak of each one until it ends."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self._peaks: dict[int, Peak] = {}

    def run(self) -> None:
        """Poll until stopped."""
        while not self._ended.wait(_POLL_SECONDS):
            for process in _descendants(self._root):
                peak = peak_megabytes(process)
                if peak > self._peaks.get(process, Peak("", 0.0)).megabytes:
                    with self._changed:
                        self._peaks[process] = Peak(_program(process), peak)
                        self._changed.notify_all()

    def wait_for(self, count: int, seconds: float) -> None:
        """Wait until this many descendants were seen."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._peaks) >= count, seconds)

    def stop(self) -> None:
        """End the watch."""
        self._ended.set()
        self.join()

    def others(self) -> list[Peak]:
        """Return the peaks of all descendants, largest first."""
        return sorted(self._peaks.values(), key=lambda peak: -peak.megabytes)


def _program(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def _descendants(root: int) -> list[int]:
    found: list[int] = []
    pending = [root]
    while pending:
        process = pending.pop()
        for task in _listed(Path(f"/proc/{process}/task")):
            try:
                children = [int(text) for text in (task / "children").read_text().split()]
            except OSError:
                continue
            found += children
            pending += children
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
