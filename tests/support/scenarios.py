"""Scenarios: calls of cached methods compared with eager, run alike in a cold and in a relaunched process.

A scenario is a function of a module in `tests.scenarios`; it takes a `Run`. All scenarios of a module run in this
process first (cold), then in one fresh process (relaunched), where a trace or an import of a compiler is an error.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import gearcache

#: What a hit must not import: compilers, and what drives them.
COMPILERS = ("torch._dynamo", "torch._inductor", "sympy", "gearcache.building", "gearcache.ge_cache.capture.capture")


def strict_config(backend: str = "eager", **options: Any) -> gearcache.CompilerConfig:
    """A config under which a fault of the cache is an error."""
    return gearcache.CompilerConfig(backend=backend, strict=True, **options)


def plain(value: Any) -> Any:
    """What JSON can hold of a result: types by name, tensors with dtype, shape and values."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), value.detach().tolist()]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return [type(value).__name__, [[plain(key), plain(item)] for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [plain(item) for item in value]]
    if dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        return [type(value).__name__, {name: plain(item) for name, item in vars(value).items()}]
    return type(value).__name__


def same(left: Any, right: Any, tolerance: float = 0.0) -> bool:
    """Whether two results are equal: exact types, structure and values, tensors within the tolerance."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        return bool(torch.allclose(left, right, atol=tolerance, rtol=tolerance))
    if left is None or isinstance(left, (bool, int, float, str)):
        return bool(left == right)
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(same(left[key], right[key], tolerance) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(lambda a, b: same(a, b, tolerance), left, right))
    if isinstance(left, torch.nn.Module):
        return True
    if hasattr(left, "__dict__"):
        return same(vars(left), vars(right), tolerance)
    return bool(left == right)


def traced(count: int) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Say how many traces a scenario takes in the process that compiles."""

    def decorate(scenario: Callable[[Run], None]) -> Callable[[Run], None]:
        scenario.traces = count  # type: ignore[attr-defined]
        return scenario

    return decorate


class Run:
    """One scenario in one process: what it called, and how that compared."""

    def __init__(self, backend: str = "eager", tolerance: float = 0.0) -> None:
        self.backend = backend
        self.tolerance = tolerance
        self.relaunched = False
        self.checks: dict[str, dict[str, Any]] = {}
        self.cached: Any = None
        self._methods: list[Any] = []

    def cache(self, method: Callable[..., Any], *, on_miss: str | None = None, **parameters: Any) -> Any:
        """Cache a bound method; its statistics go into the report."""
        config = strict_config(self.backend, **({"on_miss": on_miss} if on_miss else {}))
        return self.watch(gearcache.cache_compile(method, config=config, **parameters))

    def pad(self, method: Callable[..., Any], gears: Any, values: Any, *, policy: str = "zip") -> Any:
        """Cache a bound method whose calls between gears are padded."""
        config = strict_config(self.backend, on_miss="pad", pad_values=values)
        config.inference_config.dynamic_gears_merge_policy = policy
        return self.watch(gearcache.cache_compile(method, config=config, gears=gears))

    def watch(self, cached: Any) -> Any:
        """Report the statistics of a method that was cached elsewhere (by a decorator)."""
        self._methods.append(cached)
        return cached

    def compare(self, label: str, cached: Any, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call both with equal arguments; compare the results and what became of the arguments."""
        theirs, their_keywords = copy.deepcopy((args, kwargs))
        with torch.no_grad():
            expected = method(*theirs, **their_keywords)
        found = cached(*args, **kwargs)
        self.check(label, (found, args, kwargs), (expected, theirs, their_keywords))
        return found

    def check(self, label: str, found: Any, expected: Any) -> None:
        """Note whether two values are equal."""
        assert label not in self.checks, f"two checks are called {label!r}"
        equal = same(found, expected, self.tolerance)
        self.checks[label] = {"equal": equal, "found": plain(found), "expected": plain(expected)}

    def report(self) -> dict[str, Any]:
        """Everything as JSON data."""
        names = ("hits", "misses", "traces", "compiles", "loads", "calls", "gears", "miss_reasons")
        stats = [{name: getattr(cached.stats, name) for name in names} for cached in self._methods]
        return {"checks": self.checks, "stats": stats, "error": None}


def scenario_names(module: str) -> list[str]:
    """The public functions of a module whose only parameter is `run`."""
    found = vars(importlib.import_module(module)).items()
    functions = {name: value for name, value in found if inspect.isfunction(value) and not name.startswith("_")}
    return [name for name, value in functions.items() if [*inspect.signature(value).parameters] == ["run"]]


def run_scenario(
    module: str, name: str, root: Path, *, relaunched: bool = False, backend: str = "eager", tolerance: float = 0.0
) -> dict[str, Any]:
    """Run one scenario with a cache folder of its own; an exception becomes `error`."""
    function = getattr(importlib.import_module(module), name)
    os.environ["TORCHAIR_CACHE_HOME"] = str(root / name)
    run = Run(backend, tolerance)
    run.relaunched = relaunched
    before = {compiler for compiler in COMPILERS if compiler in sys.modules}
    torch.manual_seed(0)
    try:
        function(run)
        report = run.report()
    except Exception:
        report = {"checks": {}, "stats": [], "error": traceback.format_exc()}
    report["imported"] = sorted(
        compiler for compiler in COMPILERS if compiler in sys.modules and compiler not in before
    )
    report["present"] = sorted(compiler for compiler in COMPILERS if compiler in sys.modules)
    return report
