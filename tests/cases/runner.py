"""The two processes that meet every case: one compiles, the other, of another hash seed, may trace nothing."""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import gearcache
from tests.cases.case import Case, Patch
from tests.support.collecting import collect_seldom
from tests.support.compared import is_same
from tests.support.scenarios import plain, strict_config

#: What a call was, by the counter that it moved; the first of those that moved.
_STATES = {"traced": "traces", "eager": "eager_calls", "hit": "hits"}
_X = torch.arange(16.0).reshape(4, 4) / 4 - 1
FILES = sorted(path.stem for path in Path(__file__).parent.glob("of_*.py"))
#: Files whose facts have nothing to do with sizes and ints that vary: they are traced with those that they have.
_STATIC = ("of_checks", "of_classes", "of_library", "of_made", "of_sets")


def cases(file: str) -> dict[str, type[Case]]:
    """Return the cases of a file by name: those that are functions of it, and those of its tables of texts."""
    found: dict[str, type[Case]] = {}
    for name, value in vars(importlib.import_module(f"tests.cases.{file}")).items():
        if isinstance(value, type) and issubclass(value, Case) and "run" in vars(value) and value is not Case:
            found[name] = value
        elif isinstance(value, dict) and value and all(isinstance(each, type) for each in value.values()):
            rows = {name: each for name, each in value.items() if issubclass(each, Case)}
            assert not rows.keys() & found.keys(), f"{file}: two cases are called {sorted(rows.keys() & found.keys())}"
            found |= rows
    return found


def _call(cached: Any, module: Case, twin: Case, x: torch.Tensor) -> Callable[[], dict[str, Any]]:
    """Make one call, and the same call of the method itself of the twin.

    Returns what compares them, for a time at which nothing of torch is changed: the results, and what the calls have
    left in the modules if these are two.
    """
    before = cached.stats.to_dict()
    expected: Any = None
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _seed()
            if not isinstance(twin.refused, str):  # or what the method does makes no difference
                expected = twin.run(x.clone())
            _seed()
            try:
                found, state = cached(x.clone()), None
            except gearcache.CaptureError as error:
                found, state = str(error), "refused"
    except Exception:
        expected, found, state = None, traceback.format_exc(), "raw"
    after = cached.stats.to_dict()

    def compare() -> dict[str, Any]:
        is_left = module is twin or (state == "refused" and twin.refused is None) or is_same(vars(module), vars(twin))
        is_right = state == "refused" or is_same(found, expected)
        states = (
            None if is_left or state == "raw" else "wrong",
            state,
            None if is_right else "wrong",
            *(name for name, counter in _STATES.items() if after[counter] > before[counter]),
            "served",
        )
        detail = found if state else [*after["miss_reasons"], f"found {found}, expected {expected}"]
        return {"state": next(filter(None, states)), "detail": detail, "expected": plain(expected)}

    return compare


def _seed() -> None:
    random.seed(0)
    torch.manual_seed(0)


def _met(cls: type[Case], cache: str) -> tuple[Any, Case]:
    _seed()
    module = cls()
    dynamic = cls.__module__.rpartition(".")[2] not in _STATIC
    return gearcache.cache_compile(module.run, cache_dir=cache, config=strict_config(), dynamic=dynamic), module


def _calls(cls: type[Case], cache: str) -> dict[str, Any]:
    """Call the cached method of a new module. Twice, if the module may be another one afterwards."""
    cached, module = _met(cls, cache)
    if not cls.writes:
        return _call(cached, module, module, _X)()
    _seed()
    twin = cls()
    reports = []
    for number in range(2):
        reports.append(_call(cached, module, twin, torch.full((3, 4), float(number)))())
        if reports[-1]["state"] in ("refused", "raw", "wrong"):
            return reports[-1]
    return reports[0]


def _changed(cached: Any, module: Case) -> dict[str, Any]:
    with Patch() as patch:
        module.change(patch)
        compare = _call(cached, module, module, _X)
    return compare()


def _in_first_process(cls: type[Case], cache: str) -> dict[str, Any]:
    """Compile a method, with its fact as it is."""
    return {"compiled": _calls(cls, cache)}


def _in_second_process(cls: type[Case], cache: str) -> dict[str, Any]:
    """Load what was compiled; change the fact after that; and load it where the fact is changed. Nothing is traced."""
    if cls.writes:
        return {"again": _calls(cls, cache)}
    cached, module = _met(cls, cache)
    found = {"again": _call(cached, module, module, _X)(), "changed after the load": _changed(cached, module)}
    return found | {"changed before the load": _changed(*_met(cls, cache))}


def child() -> None:
    """Meet every case as the first or as the second process does."""
    if not os.environ.get("THOROUGH"):
        collect_seldom()
    root, order = Path(sys.argv[1]), sys.argv[2]
    meet: Callable[[type[Case], str], dict[str, Any]] = _in_first_process if order == "first" else _in_second_process
    with torch.compiler.set_stance("default" if order == "first" else "eager_on_recompile"):
        reports = {
            file: {
                name: meet(cls, str(root / file / str(number)))
                for number, (name, cls) in enumerate(cases(file).items())
            }
            for file in FILES
        }
    root.joinpath(f"{order}.json").write_text(json.dumps(reports))
    print("true")
