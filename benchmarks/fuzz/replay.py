"""Runs one written case again, each phase in its own process, and reports the result. Reproducers call this."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.fuzz.campaign import started
from benchmarks.fuzz.case import Case, Failure, Phase, Report, Step


def replayed(case: Case, say: Callable[[str], object] = lambda _: None) -> Failure | None:
    """Run the phases of a case in separate processes; returns its failure."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        (folder / "0.json").write_text(case.to_text())
        for number in range(len(case.phases)):
            order = {
                "folder": name,
                "cases": [0],
                "phase": number,
                "written": True,
                "seed": "",
                "backend": case.backend,
            }
            with started(order, number) as process:
                assert process.stdout is not None
                lines = [json.loads(line) for line in process.stdout]
                code = process.wait()
            if not lines or "report" not in lines[-1]:
                return Failure("crash", number, -1, "", f"exit {code}")
            report = Report.from_plain(lines[-1]["report"])
            say(f"phase {number}: {report.calls} calls, refused {report.refusals}, {report.events} {report.invalid}")
            if report.failure is not None or report.invalid:
                return report.failure
    return None


def replay(phases: Sequence[tuple[str, Sequence[tuple[str, ...]], bool]], backend: str = "eager") -> None:
    """Run a case given as (source, steps, whether the first call has to hit) per process.

    Steps are (label, text) or (label, text, scope).
    """
    made = tuple(Phase(source, tuple(Step(*step) for step in steps), hits) for source, steps, hits in phases)
    failure = replayed(Case("case_replayed", "", backend, made), print)
    if failure is None:
        print("no difference")
        return
    print(f"{failure.signature()}\nphase {failure.phase}, step {failure.step} ({failure.label})\n{failure.text}")
    sys.exit(1)


def script(case: Case, failure: Failure, remarks: Sequence[str] = (), module: str = "benchmarks.fuzz.replay") -> str:
    """Return a reproducer: a program that shows the difference, or prints `no difference`."""
    remarks = [f"case {case.seed}: {failure.signature()}", *remarks]
    lines = ['"""' + "\n".join(remarks).replace("\\", "/").replace('"""', "'''"), "", "PYTHONPATH=src:. python FILE"]
    lines += ['"""', "", f"from {module} import replay", ""]
    names = []
    for number, phase in enumerate(case.phases):
        if number and phase.source == case.phases[0].source:
            names.append(names[0])
            continue
        names.append(f"SOURCE{number}")
        lines += [f"SOURCE{number} = r'''", phase.source.strip(), "'''", ""]
    lines.append("replay([")
    for name, phase in zip(names, case.phases, strict=True):
        lines.append(f"    ({name}, [")
        for step in phase.steps:
            scope = f", {step.scope!r}" if step.scope != "world" else ""
            lines.append(f"        ({step.label!r}, {step.text!r}{scope}),")
        lines.append(f"    ], {phase.hits}),")
    lines.append(f"], backend={case.backend!r})")
    return "\n".join(lines) + "\n"
