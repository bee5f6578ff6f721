"""Measures the overhead of a call over the bare compiled graph, by the number of its input tensors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from benchmarks._process import Session
from benchmarks._sample import NO_BUDGET, Budget, Ratio, Sample

SIZES = (2, 16, 64, 256)
QUICK_SIZES = (2, 16, 64)
_MICROSECOND = 1e-6


def rows(session: Session, model: str) -> list[Ratio]:
    """Return the rows of all sizes; the model is always a sum, whose graph takes almost no time."""
    del model
    sizes = QUICK_SIZES if session.options.quick else SIZES
    order = {
        "sizes": list(sizes),
        "backend": session.options.backend,
        "cache_dir": str(session.folder / "dispatch" / "gearcache"),
        "rounds": 7 if session.options.quick else 15,
    }
    report = session.run("calls", "benchmarks.dispatch:measure", order, home="dispatch").report
    found = []
    for size in sizes:
        figures = {name: Sample.of(name, [value], "s") for name, value in report[str(size)].items()}
        inputs = Budget(ours_at_most=(1.5 + 0.12 * (size - 2)) * _MICROSECOND)
        gears = Budget(ours_at_most=0.5 * _MICROSECOND) if size == 2 else NO_BUDGET
        label = f"dispatch over the bare graph, {size} inputs"
        checked, unchecked = figures["inputs"], figures["gears"]
        found += [
            Ratio(f"{label}: beside torch.compile", figures.get("compile"), checked, inputs),
            Ratio(f"{label}: validate=gears beside skip_guard_eval_unsafe", figures.get("skip"), unchecked, gears),
            Ratio(f"{label}: validate=gears beside the AOT function, guards off", figures.get("aot"), unchecked),
        ]
    numbers = {name: Sample.of(name, [value], "s") for name, value in report["numbers"].items()}
    label = "a call with an int that varies over one with a checked constant"
    # As in the rows above, the budget is for the dispatch: AOTInductor takes 0.1 to 0.3 µs for one more input.
    budget = Budget(ours_at_most=0.1 * _MICROSECOND)
    found.append(Ratio(f"{label}: beside torch.compile", numbers.get("compile"), numbers["ours"]))
    found.append(Ratio(f"{label}: without what the graph takes for one more input", None, numbers["dispatch"], budget))
    return found


def measure(order: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return, per size, the overhead in seconds per call of each contestant over the bare graph."""
    import torch

    # A group of one thread: the graph is too small to be divided, and idle threads would only add noise.
    torch.set_num_threads(1)
    with torch.no_grad():
        found = {str(size): _measure(size, order) for size in order["sizes"]}
        return found | {"numbers": _measure_numbers(order)}


def _measure_numbers(order: dict[str, Any]) -> dict[str, float]:
    """Return the overhead in seconds of an int that is an input of the graph, over one that is a constant.

    The graph itself takes longer for one more input; "dispatch" is without that.
    """
    import torch

    import gearcache
    from benchmarks import sums

    module, x = sums.Sum(), torch.randn(2, 4)
    config = gearcache.CompilerConfig(backend=order["backend"], strict=True)
    methods: dict[str, Any] = {
        name: gearcache.cache_compile(
            module.shifted, config=config, cache_dir=order["cache_dir"], dynamic=None, constants=constants
        )
        for name, constants in (("ours", ()), ("ours constant", ("n",)))
    }
    if order["backend"] == "inductor":
        torch._dynamo.reset()
        methods["compile"] = torch.compile(module.shifted, fullgraph=True)
        methods["compile constant"] = torch.compile(module.shifted, fullgraph=True, dynamic=False)
    for name, method in methods.items():
        for n in (3,) if "constant" in name else (3, 4, 5):
            method(x, n)
    # Each has seen one value before: its static graph would serve that value, and the number's graph the others.
    ways = {name: _loop_over_number(method, x, 3 if "constant" in name else 5) for name, method in methods.items()}
    is_native = order["backend"] == "inductor"
    ways["bare"] = _loop_over_bare(_last_graph(methods["ours"]), x, [torch.tensor(5) if is_native else 5])
    ways["bare constant"] = _loop_over_bare(_last_graph(methods["ours constant"]), x, [])
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(order["rounds"]):
        for name, way in ways.items():
            seconds[name] = min(seconds[name], _median(way))
    added = {name: seconds[name] - seconds[f"{name} constant"] for name in ways if "constant" not in name}
    return added | {"dispatch": added["ours"] - added["bare"]}


def _last_graph(cached: Any) -> Callable[[list[Any]], Any]:
    run = cached._binding.loaded.variants[-1].graphs[-1]._run
    return getattr(run, "run", run)  # type: ignore[no-any-return]


def _loop_over_number(method: Callable[..., Any], x: Any, n: int) -> Callable[[int], None]:
    def loop(calls: int) -> None:
        for _ in range(calls):
            method(x, n)

    return loop


def _measure(size: int, order: dict[str, Any]) -> dict[str, float]:
    import torch

    import gearcache
    from benchmarks import sums

    module = sums.Sum()
    x, rest = torch.randn(2, 4), [torch.randn(2, 4) for _ in range(size - 1)]
    methods: dict[str, Callable[..., Any]] = {}
    for validate in ("inputs", "gears"):
        config = gearcache.CompilerConfig(backend=order["backend"], strict=True, validate=validate)
        cached = gearcache.cache_compile(
            module.add, config=config, cache_dir=order["cache_dir"], gears={"x": {0: [2, 4]}}
        )
        cached(x, rest)
        methods[validate] = cached
    if order["backend"] == "inductor":
        methods.update(_torch_methods(module, x.clone(), [tensor.clone() for tensor in rest]))
    ways = {
        name: _loop_over(method, x.clone(), [tensor.clone() for tensor in rest]) for name, method in methods.items()
    }
    ways["bare"] = _loop_over_bare(_bare(methods["inputs"]), x, rest)
    if "compile" in ways:
        ways["skip"] = ways["compile"]
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(order["rounds"]):
        for name, way in ways.items():
            with _skipping_guards() if name == "skip" else nullcontext():
                seconds[name] = min(seconds[name], _median(way))
    bare = seconds.pop("bare")
    return {name: value - bare for name, value in seconds.items()}


def _bare(cached: Any) -> Callable[[list[Any]], Any]:
    """Return the compiled graph itself, of the gear that serves two rows."""
    graphs = [graph for active in cached._binding.loaded.variants for graph in active.graphs]
    run = next(graph for graph in graphs if graph.gear.sizes[0][0] == 2)._run
    return getattr(run, "run", run)  # type: ignore[no-any-return]


def _torch_methods(module: Any, x: Any, rest: list[Any]) -> dict[str, Callable[..., Any]]:
    import torch

    from benchmarks import sums

    torch._dynamo.reset()
    compiled: Any = torch.compile(module.add, dynamic=False, fullgraph=True)
    compiled(x, rest)
    function: Any = torch.compile(sums.add, dynamic=False, fullgraph=True)
    aot = function.aot_compile(((x, rest), {}))
    aot.disable_guard_check()
    return {"compile": compiled, "aot": aot}


@contextmanager
def _skipping_guards() -> Iterator[None]:
    import torch

    with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
        yield


def _loop_over(method: Callable[..., Any], x: Any, rest: list[Any]) -> Callable[[int], None]:
    """Return a function that calls the method this many times: the measurement includes no wrapper of ours."""

    def loop(calls: int) -> None:
        for _ in range(calls):
            method(x, rest)

    return loop


def _loop_over_bare(run: Callable[[list[Any]], Any], x: Any, rest: list[Any]) -> Callable[[int], None]:
    def loop(calls: int) -> None:
        for _ in range(calls):
            run([x, *rest])

    return loop


def _median(loop: Callable[[int], None], *, chunks: int = 15, calls: int = 200) -> float:
    """Return the median seconds per call, including the loop, which costs every contestant the same."""
    seconds = []
    for _ in range(chunks):
        begin = time.perf_counter()
        loop(calls)
        seconds.append((time.perf_counter() - begin) / calls)
    return statistics.median(seconds)
