"""Measures tokens per second of a decode step once everything is compiled: eager, torch.compile and ours, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks import relaunch
from benchmarks._process import Session
from benchmarks._sample import Budget, Ratio, Sample

#: Runs of the same code differ by a few percent.
NOT_SLOWER = 0.97
#: AOTInductor's wrapper is glue; is its own call slower when the C++ compiler does not optimise it?
WRAPPER = "aot_inductor.compile_wrapper_opt_level"


def rows(session: Session, model: str) -> list[Ratio]:
    """Return the rows of one model."""
    relaunch.cold_ours(session, model)
    order = {
        "model": model,
        "batches": list(relaunch.BATCHES),
        "cache_dir": str(session.folder / "ours" / "gearcache"),
        "backend": session.options.backend,
        "rounds": 5 if session.options.quick else 9,
        "steps": 20,
        # A full second set of gears: this takes too long for a large model.
        "levels": ["O1"] if model != "smollm2" and session.options.backend == "inductor" else [],
    }
    # torch.compile's own cache folder, warm if an earlier section has filled it.
    home = f"compile {model}"
    report = session.run(f"{model}, steady state", "benchmarks.steady:measure", order, home=home).report
    found = []
    for batch in relaunch.BATCHES:
        samples = {
            name: Sample.of(name, [batch / seconds for seconds in values], "tokens/s")
            for name, values in report[str(batch)].items()
        }
        label = f"steady {model}, batch {batch}"
        ours = samples["ours"]
        found += [
            Ratio(f"{label}: beside torch.compile", samples["compile"], ours, Budget(ratio_at_least=NOT_SLOWER)),
            Ratio(f"{label}: beside eager", samples["eager"], ours),
        ]
        if "ours O1" in samples:
            found.append(Ratio(f"{label}: our default beside ours with wrapper O1", samples["ours O1"], ours))
    return found


def measure(order: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return, per batch size and way, the seconds of a step in each round."""
    import torch

    from benchmarks import models

    decoder = models.load(order["model"])
    torch.manual_seed(0)
    ways: dict[str, Callable[..., Any]] = {"eager": decoder.decode, "ours": _ours(decoder, order, {})}
    for level in order["levels"]:
        ways[f"ours {level}"] = _ours(decoder, order, {WRAPPER: level})
    ways["compile"] = torch.compile(decoder.decode, dynamic=False, fullgraph=True)
    found: dict[str, dict[str, list[float]]] = {}
    with torch.no_grad():
        for batch in order["batches"]:
            call = decoder.call(batch)
            for way in ways.values():
                _steps(way, call, 2)
            seconds: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(order["rounds"]):
                for name, way in ways.items():
                    seconds[name].append(_steps(way, call, order["steps"]))
            found[str(batch)] = seconds
    return found


def _ours(decoder: Any, order: dict[str, Any], options: dict[str, Any]) -> Any:
    from benchmarks import models

    return models.cached(decoder, order["cache_dir"], options=options, backend=order["backend"])


def _steps(way: Callable[..., Any], call: tuple[Any, ...], steps: int) -> float:
    """Return the seconds per step of a generation on an empty cache."""
    from benchmarks import models

    models.reset(call)
    begin = time.perf_counter()
    for _ in range(steps):
        way(*call)
    return (time.perf_counter() - begin) / steps
