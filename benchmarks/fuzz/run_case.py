"""Runs one phase of a case: each step in the cached world, then in the plain one, then both are compared."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import gearcache
from benchmarks.fuzz.case import ARGUMENTS, PROCESS, Case, Failure, Report
from benchmarks.fuzz.compare import Comparison, Different
from benchmarks.fuzz.world import World
from gearcache.errors import CacheError, GearcacheError, MethodRaises, PreparationError

#: Seconds after which a phase counts as hung; the campaign kills a worker that does not notice.
PATIENCE = {"eager": 45, "inductor": 500}
TOLERANCE = {"eager": 0.0, "inductor": 2e-4}


class TooSlow(BaseException):
    """A phase did not end in time."""


def run_phase(case: Case, number: int, folder: Path) -> Report:
    """Run one phase in this process; `folder` has the files that phases share: the cache and the file of the module."""
    report, patience = Report(), PATIENCE[case.backend]
    begin = time.perf_counter()
    events: Counter[str] = Counter()
    misses: list[str] = []

    def note(event: gearcache.events.Event) -> None:
        events.update([_event_text(event)])
        if event.kind == "miss":
            misses.append(f"{event.reason}: {event.detail}")

    remove = gearcache.add_listener(note)
    try:
        with limited(patience), same_process_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _run(case, number, folder, report, events)
        if report.failure is not None and report.failure.kind == "traced again":
            report.failure.text = "\n".join(misses)[-2000:]
    except TooSlow:
        report.failure = Failure("hang", number, -1, "", f"not done after {patience} s")
    except Exception as error:
        report.failure = Failure("harness", number, -1, "", f"{type(error).__name__}: {error}", text=trace_text(error))
    finally:
        remove()
    report.events = dict(sorted(events.items()))
    report.seconds = time.perf_counter() - begin
    return report


def _run(case: Case, number: int, folder: Path, report: Report, events: Counter[str]) -> None:
    phase = case.phases[number]
    file = folder / f"{case.name}.py"
    file.write_text(phase.source)
    names = {case.name: "subject", f"{case.name}_plain": "subject"}
    cached: World | None = None
    plain: World | None = None
    try:
        try:
            plain = World(case.name, file, case.backend, None)
        except Exception as error:
            report.invalid = f"import: {type(error).__name__}: {error}"
            return
        try:
            cached = World(case.name, file, case.backend, folder / "cache", refreshed=case.refreshed)
        except GearcacheError as error:  # a method that is refused before its first call
            report.refusals[reason(error)] = 1
            return
        except Exception as error:
            report.failure = raw(error, number, -1, "import")
            return
        is_called = False
        for index, step in enumerate(phase.steps):
            if step.scope == PROCESS:
                cached.take(step.text, index)
                plain.space.update({name: value for name, value in cached.space.items() if name not in plain.space})
                continue
            traces = events["trace"]
            done = _step(step.label, step.text, index, number, plain, cached, report)
            if report.failure is not None or report.invalid or not done:
                return
            if step.label == ARGUMENTS:
                continue
            if step.label == "call" and not is_called:
                is_called = True
                made = events["publish"] > 0  # not for a method without an operation
                report.failure = _first_call(phase.hits, events["trace"] - traces, number, index, report, folder, made)
                if report.failure is not None:
                    return
            report.failure = _difference(plain, cached, names, case, number, index, step.label)
            if report.failure is not None:
                return
    finally:
        for world in (cached, plain):
            if world is not None:
                world.close()


def _first_call(
    hits: bool, traces: int, number: int, index: int, report: Report, folder: Path, made: bool
) -> Failure | None:
    """Record that the first call of a case was served by a graph; later processes have to find what it left."""
    served = folder / "served"
    if number == 0:
        if made and not report.refusals:
            served.touch()
    elif hits and traces and served.exists():
        return Failure("traced again", number, index, "call", "a relaunch without any change")
    return None


def _step(label: str, text: str, index: int, number: int, plain: World, cached: World, report: Report) -> bool:
    """Execute one step in both worlds; False if no step can follow it."""
    found = cached.take(text, index)
    rng = torch.get_rng_state()
    report.calls += cached.calls
    if isinstance(found, GearcacheError):
        if isinstance(found, (CacheError, PreparationError)):  # the second is an unforeseen error
            report.failure = raw(found, number, index, label)
            return False
        text = reason(found)
        report.refusals[text] = report.refusals.get(text, 0) + 1
        if isinstance(found, MethodRaises):  # the method has run once, its result is lost
            return False
        # The step may have had no effect; it is then left out in the plain world.
        return cached.calls > 0
    expected = plain.take(text, index)
    if expected is not None and found is None:
        report.failure = Failure("not raised", number, index, label, reason(expected), text=trace_text(expected))
        return False
    if found is None:
        if not torch.equal(rng, torch.get_rng_state()):
            report.failure = Failure("value", number, index, label, "state of the random generator")
            return False
        return True
    if expected is None or type(expected).__name__ != type(found).__name__:
        report.failure = raw(found, number, index, label)
        if expected is not None:
            report.failure.detail += f" (eager: {type(expected).__name__})"
        return False
    report.raised += 1
    return False


def _difference(
    plain: World, cached: World, names: dict[str, str], case: Case, number: int, index: int, label: str
) -> Failure | None:
    comparison = Comparison(names, TOLERANCE.get(case.backend, 0.0))
    try:
        comparison.compare(plain.state(), cached.state(), "")
    except Different as difference:
        path = difference.path
        return Failure(difference.kind, number, index, label, place(path), text=f"{path}: {difference.sides}")
    return None


def place(path: str) -> str:
    """Return the part of the world that a path leads to: results, arguments, the module, globals."""
    if path.startswith("['globals']"):
        return "globals"
    name = path.removeprefix("['space']['").partition("'")[0]
    return "result" if name.startswith("out") else "argument" if name[:1] == "p" and name[1:].isdigit() else "module"


def raw(error: BaseException, number: int, index: int, label: str) -> Failure:
    kind = "fault" if isinstance(error, (CacheError, PreparationError)) else "raw error"
    return Failure(
        kind,
        number,
        index,
        label,
        f"{type(error).__name__}: {plain_text(str(error))}",
        _where(error),
        trace_text(error),
    )


def _where(error: BaseException) -> str:
    """Return the innermost function of gearcache that an error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/gearcache/" in frame.filename or "<gearcache" in frame.filename]
    if not ours:
        return ""
    name = ours[-1].filename.partition("/gearcache/")[2] or "generated code"
    return f"{name}:{ours[-1].name}"


def trace_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)[-12:])[-6000:]


def reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {plain_text(str(error))}"


def plain_text(text: str) -> str:
    """Return the first line of a message without names and numbers."""
    first = text.strip().partition("\n")[0]
    first = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "`…`", first)
    first = re.sub(r"\b[0-9a-f]{16,}\b", "…", first)
    return re.sub(r"\d+", "N", first)[:200]


def _event_text(event: gearcache.events.Event) -> str:
    return f"{event.kind}: {event.reason}" if event.reason else str(event.kind)


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def same_process_state() -> Iterator[None]:
    """Undo the changes of steps in the process: environment, global hooks, replaced functions of torch."""
    environ = dict(os.environ)
    hooks = [
        (value, value.copy())
        for name, value in vars(torch.nn.modules.module).items()
        if name.startswith("_global_") and isinstance(value, dict)
    ]
    undone = {
        owner: dict(vars(owner))
        for owner in (torch, torch.nn.functional, torch.nn.Module, torch.nn.Linear, torch.Tensor)
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environ)
        for registered, content in hooks:
            registered.clear()
            registered.update(content)
        for owner, before in undone.items():
            for name, value in list(vars(owner).items()):
                if name not in before:
                    delattr(owner, name)
                elif before[name] is not value:
                    setattr(owner, name, before[name])
