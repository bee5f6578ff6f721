"""Measures the first start: every gear compiled on empty caches, seconds and memory, beside torch.compile."""

from __future__ import annotations

from benchmarks import relaunch
from benchmarks._process import ContestantFailed, Outcome, Session
from benchmarks._sample import NO_BUDGET, Budget, Ratio, Sample

#: Runs of one cold start differ by a few percent.
NOT_SLOWER = 0.95
#: How many times faster than torch.compile, if layers are compiled once.
TIMES_SOONER = {"decode8": 1.5, "decode30": 3.0, "smollm2": 3.0}


def rows(session: Session, model: str) -> list[Ratio]:
    """Return the rows of one model."""
    mine = relaunch.cold_ours(session, model)
    try:
        theirs: Outcome | None = relaunch.cold_compiled(session, model)
    except ContestantFailed:
        theirs = None
    label = f"cold {model}, {len(relaunch.BATCHES)} gears"

    def row(what: str, figure: str, *, budget: Budget = NO_BUDGET) -> Ratio:
        peer = _figure("torch.compile", theirs, figure) if theirs is not None else None
        return Ratio(f"{label}: {what}", peer, _figure("ours", mine, figure), budget)

    return [
        row("until all have answered (ours: jobs=2)", "seconds", budget=Budget(TIMES_SOONER.get(model, NOT_SLOWER))),
        row("processor time of all processes, imports included", "processor"),
        row("peak memory of the process", "own", budget=Budget(ratio_at_least=NOT_SLOWER)),
        row("peak memory of a worker (torch: of the process that compiles)", "worker", budget=Budget(NOT_SLOWER)),
        row("peaks of all processes, added", "total"),
        *_background(session, model, theirs, label),
    ]


def _background(session: Session, model: str, compiled: Outcome | None, label: str) -> list[Ratio]:
    """Return the rows of `on_miss="background"`, where the method itself serves while another process compiles."""
    report = relaunch.background_ours(session, model).report
    peer = relaunch.eager(session, model).report
    if report["tokens"] != peer["tokens"][0]:
        raise RuntimeError(f"eager gives {peer['tokens'][0]}, the call in the background {report['tokens']}")
    first = Sample.of("ours", [report["first"]], "s")
    theirs = None if compiled is None else Sample.of("torch.compile", compiled.report["each"][:1], "s")
    meanwhile, alone = Sample.of("ours", report["meanwhile"], "s"), Sample.of("eager, alone", report["alone"], "s")
    return [
        Ratio(f"{label}: on_miss='background': the first answer", theirs, first),
        Ratio(f"{label}: … the first answer beside eager's", Sample.of("eager", peer["each"][:1], "s"), first),
        Ratio(f"{label}: … a call while another process compiles", alone, meanwhile),
        Ratio(f"{label}: … until a graph serves", None, Sample.of("ours", [report["served"]], "s")),
    ]


def _figure(name: str, outcome: Outcome, figure: str) -> Sample | None:
    if figure == "seconds":
        return Sample.of(name, [float(outcome.report["seconds"])], "s")
    if figure == "processor":
        return Sample.of(name, [outcome.processor_seconds], "s")
    worker = outcome.worker()
    megabytes = {
        "own": outcome.own.megabytes,
        # torch.compile lowers in the process itself; its own workers only run the C++ compiler.
        "worker": worker.megabytes if worker is not None and name == "ours" else outcome.own.megabytes,
        "total": outcome.total(),
    }[figure]
    return Sample.of(name, [megabytes], "MB")
