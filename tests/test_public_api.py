"""The public surface: names, signature, and what importing it costs."""

from __future__ import annotations

import inspect
import re

import pytest

import gearcache
from gearcache.telemetry.counters import Counters
from gearcache.telemetry.gear_use import GearUse
from gearcache.telemetry.stats import Stats
from tests.support.relaunch import ROOT, run_python


def test_every_public_name_can_be_imported() -> None:
    for name in gearcache.__all__:
        assert getattr(gearcache, name) is not None
        assert name in dir(gearcache)
    with pytest.raises(AttributeError, match="no attribute `unknown`"):
        _ = gearcache.unknown


def test_its_modules_need_no_import_of_their_own() -> None:
    code = """
import json, gearcache
print(json.dumps([getattr(gearcache, name).__name__ for name in ("errors", "events", "metrics")]))
"""
    assert run_python(code) == ["gearcache.errors", "gearcache.events", "gearcache.metrics"]


def test_every_test_that_the_docs_name_exists() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    links = [
        link for text in texts for link in re.findall(r"\[`(test_\w+)(…?)`\]\((?:\.\./)?(tests/[\w/]+\.py)\)", text)
    ]
    assert links
    for name, is_cut, file in links:
        assert f"def {name}{'' if is_cut else '('}" in (ROOT / file).read_text(encoding="utf-8"), name


def test_the_signature_is_that_of_the_design() -> None:
    parameters = inspect.signature(gearcache.cache_compile).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "func": None,
        "config": None,
        "dynamic": True,
        "cache_dir": None,
        "global_rank": None,
        "tp_rank": None,
        "pp_rank": None,
        "custom_decompositions": None,
        "ge_cache": False,
        "gears": None,
        "input_signature": None,
        "fullgraph": True,
        "remotes": None,
        "constants": (),
    }
    kinds = [parameter.kind for parameter in parameters.values()]
    assert kinds == [inspect.Parameter.POSITIONAL_ONLY, *[inspect.Parameter.KEYWORD_ONLY] * 13]


def test_the_statistics_are_read_only() -> None:
    stats = Stats(Counters(), GearUse("a").calls_by_kind)
    for name in ("hits", "misses", "traces", "compiles", "loads", "calls", "gears"):
        assert not getattr(stats, name)
        with pytest.raises(AttributeError):
            setattr(stats, name, 1)
        assert f"{name}=" in repr(stats)


def test_importing_every_public_name_imports_no_compiler() -> None:
    code = """
import json, sys, gearcache
[getattr(gearcache, name) for name in gearcache.__all__]
print(json.dumps([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]))
"""
    assert run_python(code) == []
