"""Runs launches of a case in this process, and compares each call with the method itself on a separate module."""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

import gearcache
from benchmarks.fuzz.case import Case, Failure, Report, Step
from benchmarks.fuzz.compare import Comparison, Different
from benchmarks.fuzz.run_case import (
    PATIENCE,
    TOLERANCE,
    TooSlow,
    limited,
    place,
    plain_text,
    raw,
    reason,
    same_process_state,
    trace_text,
)
from benchmarks.fuzz.varying.peer import peer_error, peer_graphs
from benchmarks.fuzz.varying.worlds import VaryingWorld
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.layout import Layout
from gearcache.errors import GearcacheError, InputError, MethodRaises, UnknownGear

#: Operations that make floats from numbers, which are then constants of a graph (docs/limits.md).
_FLOATS = re.compile(r"\d\.\d|[^/]/[^/]|factor")
#: Called with a text about each step: the phase, the step, and the results of both worlds.
Say = Callable[[str], object]


def run_launches(
    case: Case, numbers: range, folder: Path, *, count_peer: bool = False, say: Say = lambda text: None
) -> Report:
    """Run these launches of a case; after the last one, count graphs. `folder` has the files that launches share."""
    report, begin = Report(), time.perf_counter()
    launch = _Launches(case, folder, report, say)
    remove = gearcache.add_listener(launch.note)
    logger = logging.getLogger("gearcache")
    logger.addFilter(launch.hears)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        with limited(PATIENCE[case.backend]), same_process_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in numbers:
                launch.run(number)
                if report.failure is not None or report.invalid:
                    break
            else:
                if numbers.stop == len(case.phases):
                    launch.count(count_peer)
    except TooSlow:
        report.failure = Failure("hang", numbers.start, -1, "", f"not done after {PATIENCE[case.backend]} s")
    except Exception as error:
        text = f"{type(error).__name__}: {plain_text(str(error))}"
        report.failure = Failure("harness", numbers.start, -1, "", text, text=trace_text(error))
    finally:
        remove()
        logger.setLevel(level)
        logger.removeFilter(launch.hears)
    report.events.update(launch.counts)
    report.seconds = time.perf_counter() - begin
    return report


class _Launches:
    """The launches of one case in this process."""

    def __init__(self, case: Case, folder: Path, report: Report, say: Say) -> None:
        self._case, self._folder, self._report, self._say = case, folder, report, say
        self._cache = folder / "cache"
        self._constants = folder / "numbers-stayed-constants"
        self._limit = 16
        self._gears = 0
        #: Whether a call of this launch ran no operation: such a call is traced in each launch.
        self._is_idle = False
        self._misses: list[str] = []
        self.counts: Counter[str] = Counter()

    def note(self, event: Any) -> None:
        """Record an event of gearcache."""
        self.counts[event.kind] += 1
        if event.kind == "miss":
            self._misses.append(f"{event.reason}: {event.detail}")
        self._say(f"      {event.kind} {event.reason} {event.gear} {event.detail}".rstrip())

    def hears(self, record: logging.LogRecord) -> bool:
        """Record, for launches in other processes too, whether numbers stayed constants for a float or bool of them."""
        if "stay constants" in str(record.msg):
            self._constants.touch()
        self._is_idle |= "nothing to compile" in str(record.msg)
        return record.levelno > logging.INFO

    def run(self, number: int) -> None:
        """Run one launch."""
        case, report, phase = self._case, self._report, self._case.phases[number]
        self._say(f"launch {number}{', all calls again' if phase.hits else ''}")
        file = self._folder / f"{case.name}.py"
        file.write_text(phase.source)
        try:
            plain = VaryingWorld(case.name, file, case.backend, None)
        except Exception as error:
            report.invalid = f"import: {type(error).__name__}: {error}"
            return
        cached = None
        try:
            try:
                cached = VaryingWorld(case.name, file, case.backend, self._cache)
            except Exception as error:
                report.failure = self._error(error, None, number, -1, "import")
                return
            for index, step in enumerate(phase.steps):
                self._say(f"   {step.label}: {step.text}")
                report.failure = self._step(step, index, number, plain, cached)
                if report.failure is not None or report.invalid:
                    return
            self._limit, self._gears = cached.limit, len(cached.gears)
        finally:
            for world in (cached, plain):
                if world is not None:
                    world.close()

    def _step(self, step: Step, index: int, number: int, plain: VaryingWorld, cached: VaryingWorld) -> Failure | None:
        traces, self._misses = self.counts["trace"], []
        found = cached.take(step.text, index)
        rng = torch.get_rng_state()
        if step.label == "call":
            self._report.calls += 1
            if isinstance(found, UnknownGear) and cached.is_outside:
                self.counts["outside gears"] += 1
                return None
        expected = plain.take(step.text, index)
        if step.label == "call":
            self._say(f"      eager: {_told(plain, step, expected)}\n      ours:  {_told(cached, step, found)}")
        if found is not None and (expected is None or not _is_alike(found, expected)):
            if expected is None and isinstance(found, MethodRaises) and self._peer_is_alike(found, number, index):
                return self._raised(plain, cached)
            return self._error(found, expected, number, index, step.label)
        if expected is not None:
            if found is None and self._peer_is_alike(found, number, index):
                return self._raised(plain, cached)
            if found is None:
                return Failure("not raised", number, index, step.label, reason(expected), text=trace_text(expected))
            return self._raised(plain, cached)
        if not torch.equal(rng, torch.get_rng_state()):
            return Failure("value", number, index, step.label, "state of the random generator")
        if step.label == "call" and cached.is_outside:
            return Failure("not raised", number, index, step.label, "UnknownGear")
        failure = self._difference(plain, cached, number, index, step.label)
        if (
            failure is None
            and self._case.phases[number].hits
            and self.counts["trace"] > traces
            and not (self._is_full() or self._is_idle)
        ):
            why = "\n".join(self._misses)[-2000:]
            return Failure("traced again", number, index, step.label, self._option(), text=why)
        return failure

    def _peer_is_alike(self, found: BaseException | None, number: int, index: int) -> bool:
        """Whether `torch.compile` also answers a call that eager fails, or refuses one that eager answers."""
        error = peer_error(self._case, self._folder, number, index)
        is_alike = error is None if found is None else isinstance(error, torch._dynamo.exc.TorchDynamoException)
        self.counts["differs from eager as torch.compile does"] += is_alike
        return is_alike

    def _raised(self, plain: VaryingWorld, cached: VaryingWorld) -> None:
        """Continue with new modules: values written before an error do not count (docs/limits.md)."""
        self._report.raised += 1
        build = self._case.phases[0].steps[0]
        for world in (cached, plain):
            if build.label == "build":
                world.take(build.text, 0)
            for name in [name for name in world.space if name[0] in "po" and name[-1].isdigit()]:
                del world.space[name]

    def _error(
        self, found: BaseException, expected: BaseException | None, number: int, index: int, label: str
    ) -> Failure:
        failure = raw(found, number, index, label)
        failure.kind = "error" if isinstance(found, GearcacheError) else "raw error"
        if expected is not None:
            failure.detail += f" (eager: {type(expected).__name__})"
        return failure

    def _difference(
        self, plain: VaryingWorld, cached: VaryingWorld, number: int, index: int, label: str
    ) -> Failure | None:
        names = {self._case.name: "subject", f"{self._case.name}_plain": "subject"}
        try:
            Comparison(names, TOLERANCE[self._case.backend]).compare(plain.state(), cached.state(), "")
        except Different as found:
            return Failure(found.kind, number, index, label, place(found.path), text=f"{found.path}: {found.sides}")
        return None

    def _option(self) -> str:
        return ", ".join(item for item in self._case.features if item.startswith(("dynamic", "gears")))

    def _variants(self) -> list[int]:
        return [entry.variants for entry in Catalog(Layout(self._cache)).entries()] if self._cache.exists() else []

    def _is_full(self) -> bool:
        return any(variants >= self._limit for variants in self._variants())

    def count(self, count_peer: bool) -> None:
        """Count stored graphs, and compare them with the number of graphs of `torch.compile`."""
        stored = sum(self._variants())
        self.counts["graphs"] += stored
        if (
            not count_peer
            or self._constants.exists()
            or _FLOATS.search(self._case.phases[0].source.rpartition("    def ")[2])
        ):
            return
        peer = peer_graphs(self._case, self._folder)
        if peer is None:
            self.counts["refused by torch.compile"] += 1
            return
        self.counts.update({"graphs, compared": stored, "graphs of torch.compile": peer, "cases compared": 1})
        self._say(f"graphs: ours {stored}, torch.compile {peer}")
        # Each declared gear has a graph, whether it was called or not, and one more until other varying dims are known.
        if stored > ((peer + 1) * self._gears if self._gears else peer):
            text = f"{stored} graphs, torch.compile makes {peer}"
            self._report.failure = Failure("graphs", len(self._case.phases) - 1, -1, "", self._option(), text=text)


def _is_alike(found: BaseException, expected: BaseException) -> bool:
    # A gear at which the method itself would raise has no graph: sizes are checked before the method could raise.
    return type(found).__name__ == type(expected).__name__ or isinstance(found, (type(expected), InputError))


def _told(world: VaryingWorld, step: Step, error: BaseException | None) -> str:
    if error is not None:
        return f"{type(error).__name__}: {error}"
    return repr(world.space.get(step.text.partition(" ")[0])).replace("\n", "")[:300]
