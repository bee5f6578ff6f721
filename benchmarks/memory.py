"""Measures the memory that loaded gears add to a process, and the memory that released models leave behind."""

from __future__ import annotations

from typing import Any

from benchmarks import relaunch
from benchmarks._process import Outcome, Session
from benchmarks._sample import NO_BUDGET, Budget, Ratio, Sample

#: The share of the weights' size that loading all gears may add.
_SHARE = 0.10
#: How many times a process loads, calls and deletes a model.
_SWAPS = 50


def rows(session: Session, model: str) -> list[Ratio]:
    """Return the rows of one model."""
    relaunch.cold_ours(session, model)
    relaunch.ours(session, model, "cold, one gear", batches=relaunch.BATCHES[:1])
    one = _measured(session, model, relaunch.BATCHES[:1])
    all_gears = _measured(session, model, relaunch.BATCHES)
    weights = Sample.of("weights", [all_gears.report["weights"]], "MB")
    label = f"memory {model}"
    count = len(relaunch.BATCHES)
    limit = Budget(ours_at_most=max(32.0, _SHARE * weights.median)) if model == "smollm2" else NO_BUDGET
    swaps = _measured(session, model, relaunch.BATCHES, "swap")

    def row(what: str, outcome: Outcome, figure: str, budget: Budget = NO_BUDGET) -> Ratio:
        return Ratio(f"{label}: {what}", weights, Sample.of("ours", [outcome.report[figure]], "MB"), budget)

    return [
        row("weights beside what loading 1 gear adds", one, "loaded"),
        row(f"weights beside what loading {count} gears adds", all_gears, "loaded", limit),
        row(f"weights beside what {count} gears add, all run", all_gears, "run"),
        row(f"weights beside the private part of that ({count} gears)", all_gears, "private"),
        row(f"weights beside the whole process with {count} gears", all_gears, "process"),
        row(
            f"weights beside what {_SWAPS} models add, loaded and deleted in turn",
            swaps,
            "left",
            Budget(weights.median),
        ),
    ]


def _measured(session: Session, model: str, batches: tuple[int, ...], how: str = "measure") -> Outcome:
    order = {
        "model": model,
        "batches": list(batches),
        "cache_dir": str(session.folder / "ours" / "gearcache"),
        "backend": session.options.backend,
    }
    name = f"{model}, {how} with {len(batches)} gears"
    return session.run(name, f"benchmarks.memory:{how}", order, home="memory")


def measure(order: dict[str, Any]) -> dict[str, float]:
    """Return the growth of this process in MB, by a load and by calls of every gear."""
    import gc

    import torch

    import gearcache
    from benchmarks import models
    from benchmarks._process import resident

    gearcache.cache_compile  # noqa: B018  (names are imported at first use)
    batches = tuple(order["batches"])
    decoder = models.load(order["model"])
    calls = [decoder.call(batch) for batch in batches]
    with torch.no_grad():
        # Touches every weight page, the caches, and eager's permanent allocations.
        models.first_answers(decoder.decode, calls)
        method = models.cached(decoder, order["cache_dir"], batches=batches, options={}, backend=order["backend"])
        gc.collect()
        before = resident()
        method.warm(*calls[0])
        loaded = resident()
        models.first_answers(method, calls)
        run = resident()
    if method.stats.compiles:
        raise RuntimeError(f"this was to be a relaunch: {method.explain()}")
    return {
        "weights": decoder.weight_megabytes(),
        "loaded": loaded["all"] - before["all"],
        "run": run["all"] - before["all"],
        "private": run["private"] - before["private"],
        "process": run["all"],
    }


def swap(order: dict[str, Any]) -> dict[str, float]:
    """Return the growth of this process in MB since its first model, after it has swapped models."""
    import gc

    import torch

    from benchmarks import models
    from benchmarks._process import resident

    batches = tuple(order["batches"])
    grown: list[float] = []
    for _ in range(_SWAPS + 1):
        decoder = models.load(order["model"])
        method = models.cached(decoder, order["cache_dir"], batches=batches, options={}, backend=order["backend"])
        with torch.no_grad():
            models.first_answers(method, [decoder.call(batch) for batch in batches])
        if method.stats.compiles:
            raise RuntimeError(f"this was to be a relaunch: {method.explain()}")
        del decoder, method
        gc.collect()
        grown.append(resident()["all"])
    return {"left": grown[-1] - grown[0]}
