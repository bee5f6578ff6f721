"""The process that makes the lookups of the table."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import gearcache
from tests.support.source_tree import ROOT
from tests.support.staleness import hitting, missing  # these fill the tables
from tests.support.staleness.calls import CALLS, PARAMETERS
from tests.support.staleness.change import CHANGES, HITTING
from tests.support.staleness.decompositions import decompose

assert hitting
assert missing

PROJECT = ROOT / "tests" / "projects" / "staleness"


@dataclass
class Case:
    """One lookup: whose source, which cache, which method, under what change."""

    source: str
    cache: str
    method: str
    change: str = ""
    parameters: str = ""
    call: str = ""
    keywords: str = ""
    expected: str = ""
    backend: str = "eager"


def serve(case: dict[str, Any]) -> dict[str, Any]:
    """Make one lookup and compare its result with that of the method itself."""
    sys.path.insert(0, case["source"])
    importlib.invalidate_caches()
    try:
        return _serve(Case(**case))
    except Exception:
        return {"right": False, "error": traceback.format_exc(), "traces": -1, "reasons": [], "compilers": []}
    finally:
        sys.path.remove(case["source"])
        for path in PROJECT.glob("*.py"):
            sys.modules.pop(path.stem, None)
            sys.modules.pop(f"{path.stem}2", None)


def _serve(case: Case) -> dict[str, Any]:
    def config(**options: Any) -> gearcache.CompilerConfig:
        return gearcache.CompilerConfig(backend=case.backend, strict=True, **options)

    model = importlib.import_module("model")
    names = {"config": config, "decompose": decompose, "torch": torch}
    net = model.Model(**_evaluate(f"dict({case.keywords})", names))
    torch.manual_seed(1)
    x = torch.randn(2, net.linear.in_features, dtype=net.linear.weight.dtype)
    parameters = {"config": config()} | _evaluate(f"dict({case.parameters or PARAMETERS.get(case.method, '')})", names)
    change = (CHANGES | HITTING).get(case.change)
    with change.apply(model, net) if change is not None else contextlib.nullcontext():
        method = getattr(net, case.method)
        arguments = _evaluate(f"[{case.call or CALLS[case.method]}]", names | {"x": x, "model": model})
        cached = gearcache.cache_compile(method, cache_dir=case.cache, **parameters)
        before = set(sys.modules)
        found = cached(*arguments)
        imported = {"torch._dynamo", "torch._inductor", "sympy"} & (set(sys.modules) - before)
        with torch.no_grad():
            expected = _evaluate(case.expected, {"x": x}) if case.expected else method(*arguments)
    found, expected = (_by_name(value) for value in (found, expected))
    tolerance = 0.0 if case.backend == "eager" else 1e-4
    return {
        "right": found.dtype == expected.dtype and torch.allclose(found, expected, atol=tolerance, rtol=tolerance),
        "error": None,
        "traces": cached.stats.traces,
        "reasons": list(cached.stats.miss_reasons),
        "compilers": sorted(imported),
        "result": found.tolist(),
    }


def _by_name(value: Any) -> Any:
    """The fields of a named tuple in the order of their names, as one tensor; a tensor as it is."""
    return torch.stack([getattr(value, name) for name in sorted(value._fields)]) if isinstance(value, tuple) else value


def _evaluate(text: str, names: dict[str, Any]) -> Any:
    return eval(text, dict(names))  # noqa: S307 - texts of this file


def child() -> None:
    """A process that serves the cases of the file named by its first argument, and prints the reports."""
    print(json.dumps([serve(case) for case in json.loads(Path(sys.argv[1]).read_text())]))
