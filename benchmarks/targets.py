"""Measures the processor time of a step compiled for each target of this CPU, beside one for the CPU itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import relaunch
from benchmarks._process import Session
from benchmarks._sample import Ratio, Sample

#: Only code that Inductor writes; operators of other models belong to torch, which selects instructions itself.
POINTWISE = "pointwise"
_ROWS = (1, 64)


class Pointwise(torch.nn.Module):
    """A normalisation, an activation and a softmax of rows that stay in the cache of the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(1024)

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        """Return probabilities of rows of 1,024 numbers."""
        return torch.softmax(torch.nn.functional.gelu(self.norm(x)) * 4, -1)


def rows(session: Session, model: str) -> list[Ratio]:
    """Return a row for each target and size; the ratio is the speed relative to `native`."""
    batches = _ROWS if model == POINTWISE else relaunch.BATCHES
    order = {
        "model": model,
        "batches": list(batches),
        "cache_dir": str(session.folder / "targets" / "gearcache"),
        "rounds": 20 if session.options.quick else 60,
        "steps": 200 if model == POINTWISE else 2 if model == "smollm2" else 5,
    }
    report = session.run(f"{model}, targets", "benchmarks.targets:measure", order, home=f"targets {model}").report
    found = []
    for batch in batches:
        samples = {name: Sample.of(name, values, "s") for name, values in report[str(batch)].items()}
        native = samples.pop("native")
        for name, sample in samples.items():
            found.append(Ratio(f"a step of {model}, batch {batch}: {name} beside native", native, sample))
    return found


def measure(order: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return, per size and target, the processor seconds of a step in each round; `native again` shows the noise."""
    from gearcache.ge_cache.inductor.targets import host_targets

    torch.manual_seed(0)
    module, make_call = _model(order["model"])
    methods = {target: _cached(module, order, target) for target in host_targets()}
    methods["native again"] = methods["native"]
    found: dict[str, dict[str, list[float]]] = {}
    with torch.no_grad():
        for batch in order["batches"]:
            call = make_call(batch)
            for method in methods.values():
                _steps(method, call, order["steps"])
            seconds: dict[str, list[float]] = {name: [] for name in methods}
            names = list(methods)
            for turn in range(order["rounds"]):
                # Each is first equally often: the first one finds the caches as the last one left them.
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    seconds[name].append(_steps(methods[name], call, order["steps"]))
            found[str(batch)] = seconds
    return found


def _model(name: str) -> tuple[Any, Callable[[int], tuple[Any, ...]]]:
    from benchmarks import models

    if name == POINTWISE:
        return Pointwise().eval(), lambda rows: (torch.randn(rows, 1024),)
    decoder = models.load(name)
    return decoder, decoder.call


def _cached(module: Any, order: dict[str, Any], target: str) -> Any:
    import gearcache

    path = "x" if order["model"] == POINTWISE else "ids"
    config = gearcache.CompilerConfig(backend="inductor", strict=True, jobs=2, target=target)
    gears = {path: {0: order["batches"]}}
    return gearcache.cache_compile(module.decode, config=config, cache_dir=order["cache_dir"], gears=gears)


def _steps(method: Callable[..., Any], call: tuple[Any, ...], steps: int) -> float:
    from benchmarks import models

    if len(call) > 1:
        models.reset(call)
    # Of this thread, which computes a share as large as any other's: waiting for a processor is not counted.
    begin = time.thread_time()
    for _ in range(steps):
        method(*call)
    return (time.thread_time() - begin) / steps
