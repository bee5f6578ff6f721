"""Runs one written case again, its launches in this process or in separate ones. Reproducers call this."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fuzz.case import Case, Failure, Phase, Report, Step
from benchmarks.fuzz.varying.compose import draw_case
from benchmarks.fuzz.varying.run import run_launches

NAME = "varying_replayed"


def forked(case: Case) -> Failure | None:
    """Run all launches of a case in one fork of this process."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        failure, _ = _forked_part(case, range(len(case.phases)), Path(folder))
        return failure


def forked_each(case: Case) -> Failure | None:
    """Run each launch of a case in a separate fork."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number in range(len(case.phases)):
            failure, goes_on = _forked_part(case, range(number, number + 1), Path(folder))
            if failure is not None or not goes_on:
                return failure
    return None


def _forked_part(case: Case, numbers: range, folder: Path) -> tuple[Failure | None, bool]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            report = run_launches(case, numbers, folder)
            os.write(write, json.dumps(report.to_plain()).encode())
        finally:
            os._exit(0)
    os.close(write)
    text = b""
    while chunk := os.read(read, 1 << 16):
        text += chunk
    os.close(read)
    _, status = os.waitpid(child, 0)
    if not text:
        return Failure("crash", numbers.start, -1, "", f"exit {-os.WTERMSIG(status)}"), False
    report = Report.from_plain(json.loads(text))
    return report.failure, not report.invalid


def replay(phases: Sequence[tuple[str, Sequence[tuple[str, ...]], bool]], backend: str = "eager") -> None:
    """Run a case given as (source, steps, whether nothing may be traced) per launch, and print each call's result."""
    made = tuple(Phase(source, tuple(Step(*step) for step in steps), hits) for source, steps, hits in phases)
    sys.exit(_shown(Case(NAME, "", backend, made)))


def run_only(seed: str, number: int, backend: str) -> int:
    """Run one case of a seed, and print each call's result; 1 if something was found."""
    case = draw_case(f"{seed}:{number}", backend)
    print(case.phases[0].source)
    print(f"# {', '.join(case.features)}")
    return _shown(case)


def _shown(case: Case) -> int:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        report = run_launches(case, range(len(case.phases)), Path(folder), count_peer=True, say=print)
    print({name: number for name, number in report.events.items() if number}, report.invalid)
    if report.failure is None:
        print("no difference")
        return 0
    failure = report.failure
    print(f"{failure.signature()}\nlaunch {failure.phase}, step {failure.step} ({failure.label})\n{failure.text}")
    return 1
