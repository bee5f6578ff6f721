"""Runs many cases, many in each process, and summarises the findings."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fuzz.case import Case, Failure, Report

ROOT = Path(__file__).resolve().parents[2]
#: A file system that need not be synced.
MEMORY = "/dev/shm"
#: Cases per process.
BATCH = 100
#: Seconds of silence after which a worker is killed: longer than the worker's own limit for a case.
LIMIT = {"eager": 60.0, "inductor": 600.0}


@dataclass
class Found:
    """A failure and the case that shows it."""

    index: int
    case: Case | None
    failure: Failure


@dataclass
class Campaign:
    """The sums of a run."""

    seed: str
    backend: str
    #: A bug that workers put back (`put_back.BUGS`); the run then ends with the first failure.
    bug: str = ""
    #: The module that workers run, and its other arguments.
    worker: str = "benchmarks.fuzz.worker"
    more: dict[str, Any] = field(default_factory=dict)
    cases: int = 0
    phases: int = 0
    calls: int = 0
    raised: int = 0
    seconds: float = 0.0
    invalid: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    #: Cases by number that are run in place of drawn ones.
    written: dict[int, Case] = field(default_factory=dict)

    def run(self, numbers: Sequence[int], *, minutes: float | None = None, processes: int = 1) -> None:
        """Run the cases of these numbers, in batches; stops at the time limit."""
        begin = time.perf_counter()
        waiting: queue.Queue[list[int]] = queue.Queue()
        for start in range(0, len(numbers), BATCH):
            waiting.put(list(numbers[start : start + BATCH]))

        def serve() -> None:
            while not self._is_over() and (minutes is None or time.perf_counter() - begin < minutes * 60):
                try:
                    batch = waiting.get_nowait()
                except queue.Empty:
                    return
                self._batch(batch, None if minutes is None else begin + minutes * 60)
                print(self.line(), file=sys.stderr, flush=True)

        threads = [threading.Thread(target=serve) for _ in range(processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.perf_counter() - begin

    def _batch(self, batch: list[int], until: float | None) -> None:
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
            folder = Path(name)
            for index in batch if self.written else []:
                (folder / f"{index}.json").write_text(self.written[index].to_text())
            left, phase = batch, 0
            while left and not self._is_over():
                left = self._phase(left, phase, folder, until)
                phase += 1

    def _is_over(self) -> bool:
        return bool(self.bug and self.found)

    def _phase(self, cases: list[int], phase: int, folder: Path, until: float | None) -> list[int]:
        """Run one phase of these cases; returns those that continue."""
        going: list[int] = []
        left = list(cases)
        while left and (until is None or time.perf_counter() < until):
            order = {"folder": str(folder), "cases": left, "phase": phase, "seed": self.seed, "backend": self.backend}
            order |= {"written": bool(self.written), "bug": self.bug, "worker": self.worker, **self.more}
            begun, silence = None, Silence(LIMIT[self.backend])
            with started(order, phase) as process:
                for line in silence.lines(process):
                    told = json.loads(line)
                    if "begin" in told:
                        begun = told["begin"]
                        continue
                    left.remove(told["case"])
                    begun = None
                    report = Report.from_plain(told["report"])
                    self._count(report, phase, told["features"])
                    if report.failure is not None:
                        self._note(told["case"], report.failure, folder)
                    elif told.get("goes_on"):
                        going.append(told["case"])
                    if self._is_over() or (until is not None and time.perf_counter() > until):
                        process.kill()
                        return going
            if begun is not None:  # the process died in this case
                left.remove(begun)
                text = (folder / "errors").read_text()[-5000:]
                detail = f"exit {process.wait()}"
                kind = "hang" if silence.is_over else "crash"
                self._note(begun, Failure(kind, phase, -1, "", detail, text=text), folder)
            elif left:
                raise RuntimeError(f"a worker ended early with {process.wait()}")
        return going

    def _note(self, index: int, failure: Failure, folder: Path) -> None:
        file = folder / f"{index}.json"
        case = Case.from_text(file.read_text()) if file.exists() else None
        self.found.append(Found(index, case, failure))
        print(f"case {self.seed}:{index}: {failure.signature()}", file=sys.stderr, flush=True)

    def _count(self, report: Report, phase: int, features: list[str]) -> None:
        self.cases += phase == 0
        self.phases += 1
        self.calls += report.calls
        self.raised += report.raised
        self.refusals.update(report.refusals)
        self.events.update({f"{'cold' if phase == 0 else 'second'} {name}": n for name, n in report.events.items()})
        self.features.update(features)
        if report.refusals:
            self.refused.update(features)
        if report.known:
            self.known[report.known] += 1
        if report.invalid:
            self.invalid[report.invalid] += 1

    def line(self) -> str:
        """Return the progress of the run."""
        refused = sum(self.refusals.values())
        found = f"{self.raised} raised alike, {len(self.found)} failures"
        return f"{self.cases} cases, {self.calls} calls, {refused} refused, {found}"


class Silence:
    """Kills a process that prints nothing for some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.is_over = False

    def lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        """Yield the lines that a process prints."""

        def end() -> None:
            self.is_over = True
            process.kill()

        assert process.stdout is not None
        while True:
            timer = threading.Timer(self._seconds, end)
            timer.start()
            line = process.stdout.readline()
            timer.cancel()
            if not line:
                return
            yield line


def started(order: dict[str, Any], phase: int) -> subprocess.Popen[str]:
    """Start a worker and send it its order. Hashes of texts differ from phase to phase."""
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTHONHASHSEED": str(phase + 1),
        "OMP_NUM_THREADS": "1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with (Path(order["folder"]) / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", order.get("worker", "benchmarks.fuzz.worker")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environ,
            cwd=ROOT,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    return process
