"""The process that meets facts: each module of `tests/projects/process`, as it is and with its fact changed."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

import gearcache

PROJECT = Path(__file__).parent / "projects" / "process"
FILES = ("checks", "classes", "library", "made", "sets", "surroundings")


def facts(file: str = "") -> dict[str, Any]:
    """Return the modules of the project, or of one of its files, by name."""
    if str(PROJECT) not in sys.path:
        sys.path.insert(0, str(PROJECT))
    base = importlib.import_module("fact").Fact
    return {
        f"{name}.{each.__name__}": each
        for name in ([file] if file else FILES)
        for each in list(vars(importlib.import_module(name)).values())
        if isinstance(each, type) and issubclass(each, base) and each.__module__ == name and "run" in vars(each)
    }


def met(cls: Any, cache: str, *, changed: bool) -> dict[str, Any]:
    """Make one call, with the fact changed or not, and compare it with the method itself."""
    torch.manual_seed(0)
    module, x = cls(), torch.arange(16.0).reshape(4, 4) / 4 - 1
    config = gearcache.CompilerConfig(backend="eager", strict=True)
    try:
        with importlib.import_module("fact").Patch() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if changed:
                module.change(patch)
            with torch.no_grad():
                expected = module.run(x.clone())
            cached = gearcache.cache_compile(module.run, cache_dir=cache, config=config)
            try:
                found = cached(x.clone())
            except gearcache.GearcacheError as error:
                return {"state": "refused", "detail": str(error), "expected": expected.tolist()}
    except Exception:
        return {"state": "raw", "detail": traceback.format_exc(), "expected": None}
    right = found.dtype == expected.dtype and torch.equal(found, expected)
    reasons = [str(reason) for reason in cached.stats.miss_reasons]
    state = "wrong" if not right else "hit" if cached.stats.traces == 0 else "traced"
    return {"state": state, "detail": reasons, "expected": expected.tolist()}


def child() -> None:
    """Meet every fact: in the first process both ways, in the second each way with what the other way left."""
    root, file, order = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    reports: dict[str, Any] = {}
    for name, cls in facts(file).items():
        plain, changed = str(root / name / "plain"), str(root / name / "changed")
        if order == "first":
            ways = {"plain": (plain, False), "changed": (changed, True)}
        else:
            ways = {"to changed": (plain, True), "to plain": (changed, False), "again": (plain, False)}
        reports[name] = {way: met(cls, cache, changed=is_changed) for way, (cache, is_changed) in ways.items()}
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(reports))
