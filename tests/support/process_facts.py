"""The process that meets facts: each module of `tests/projects/process`, as it is and with its fact changed."""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import gearcache
from tests.support.source_tree import ROOT

PROJECT = ROOT / "tests" / "projects" / "process"
FILES = ("checks", "classes", "found", "library", "made", "sets", "settings", "surroundings")
_CONFIG = gearcache.CompilerConfig(backend="eager", strict=True)


def facts() -> dict[str, Any]:
    """Return the modules of the project by name."""
    if str(PROJECT) not in sys.path:
        sys.path.insert(0, str(PROJECT))
    base = importlib.import_module("fact").Fact
    return {
        f"{name}.{each.__name__}": each
        for name in FILES
        for each in list(vars(importlib.import_module(name)).values())
        if isinstance(each, type) and issubclass(each, base) and each.__module__ == name and "run" in vars(each)
    }


def seed() -> None:
    """Let all random generators begin anew."""
    random.seed(0)
    torch.manual_seed(0)


def _called(cached: Any, module: Any) -> dict[str, Any]:
    """Make one call, and compare it with the method itself."""
    x = torch.arange(16.0).reshape(4, 4) / 4 - 1
    traces, hits, calls = cached.stats.traces, cached.stats.hits, cached.stats.eager_calls
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seed()
            expected = module.run(x.clone())
            seed()
            try:
                found = cached(x.clone())
            except gearcache.GearcacheError as error:
                return {"state": "refused", "detail": str(error), "expected": expected.tolist()}
    except Exception:
        return {"state": "raw", "detail": traceback.format_exc(), "expected": None}
    right = found.dtype == expected.dtype and torch.equal(found, expected)
    stats = cached.stats
    served = "traced" if stats.traces > traces else "eager" if stats.eager_calls > calls else "served"
    state = "wrong" if not right else "hit" if served == "served" and stats.hits > hits else served
    return {"state": state, "detail": [str(reason) for reason in stats.miss_reasons], "expected": expected.tolist()}


def _met(cls: Any, cache: str) -> tuple[Any, Any]:
    seed()
    module = cls()
    return gearcache.cache_compile(module.run, cache_dir=cache, config=_CONFIG), module


def _in_first_process(cls: Any, cache: str) -> dict[str, Any]:
    """Compile a method, with its fact as it is."""
    return {"plain": _called(*_met(cls, cache))}


def _in_second_process(cls: Any, cache: str) -> dict[str, Any]:
    """Load what was compiled; change the fact after that; and load it where the fact is changed. Nothing is traced."""
    cached, module = _met(cls, cache)
    found = {"again": _called(cached, module)}
    with importlib.import_module("fact").Patch() as patch:
        module.change(patch)
        found["changed after the load"] = _called(cached, module)
    cached, module = _met(cls, cache)
    with importlib.import_module("fact").Patch() as patch:
        module.change(patch)
        found["changed before the load"] = _called(cached, module)
    return found


def child() -> None:
    """Meet every fact as the first or as the second process does."""
    root, order = Path(sys.argv[1]), sys.argv[2]
    meet: Callable[[Any, str], dict[str, Any]] = _in_first_process if order == "first" else _in_second_process
    with torch.compiler.set_stance("default" if order == "first" else "eager_on_recompile"):
        reports = {name: meet(cls, str(root / name)) for name, cls in facts().items()}
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(reports))
