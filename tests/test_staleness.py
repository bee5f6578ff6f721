"""What makes an entry stale, and what must not. One process compiles, one meets all edits, one only hits."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.relaunch import run_python

MODEL = """\
import torch
from torch import nn

import callee

SCALE = 2.0
UNUSED = 1


def helper(x):
    return x * SCALE


def unrelated(x):
    return x - 5


class Model(nn.Module):
    def __init__(self, width=4, factor=3.0, dtype=torch.float32):
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=dtype)
        self.factor = factor
        self.unused = 0

    def run(self, x):
        return self.linear(helper(x)) * self.factor + callee.shift(x)
"""
CALLEE = """\
OFFSET = 1.0


def shift(x):
    return x + OFFSET


def unrelated(x):
    return x
"""
CODE = """
import importlib, json, os, sys, torch, gearcache
config = gearcache.CompilerConfig(backend="eager", strict=True)
done = []
for case in json.loads(sys.argv[1]):
    sys.path.insert(0, case["source"])
    importlib.invalidate_caches()
    model = importlib.import_module("model")
    torch.manual_seed(0)
    net = model.Model(**eval(case["keywords"], {"torch": torch}))
    exec(case["change"])
    cached = gearcache.cache_compile(net.run, config=config, cache_dir=case["cache"])
    weight = net.linear.weight
    x = torch.randn(2, weight.size(1), dtype=weight.dtype)
    found = cached(x)
    with torch.no_grad():
        case["right"] = torch.equal(found, net.run(x))
    case["traces"], case["reasons"] = cached.stats.traces, cached.stats.miss_reasons
    case["compilers"] = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
    sys.path.remove(case["source"])
    del sys.modules["model"], sys.modules["callee"]
    done.append(case)
print(json.dumps(done))
"""
EDITS = {
    "the method": ("model.py", "* self.factor", "* self.factor * 2", ["method"]),
    "a function of its file": ("model.py", "return x * SCALE", "return x * SCALE + 1", ["`helper`", "model.py"]),
    "a function of another file": ("callee.py", "return x + OFFSET", "return x - OFFSET", ["`shift`", "callee.py"]),
    "a global constant": ("model.py", "SCALE = 2.0", "SCALE = 4.0", ["SCALE"]),
    "a global of a callee": ("callee.py", "OFFSET = 1.0", "OFFSET = 7.0", ["OFFSET"]),
    "an attribute": ("model.py", "factor=3.0", "factor=5.0", ["factor"]),
}
HARMLESS = {
    "a comment": ("model.py", "    def run", "    # a comment\n\n    def run"),
    "an unrelated function": ("model.py", "return x - 5", "return x - 6"),
    "an unrelated function of a callee's file": ("callee.py", "    return x\n", "    return -x\n"),
    "an unused global": ("model.py", "UNUSED = 1", "UNUSED = 2\nMORE = 3"),
    "an unused attribute": ("model.py", "self.unused = 0", "self.unused = 1"),
}
OTHERS = {"dtype": '{"dtype": torch.float64}', "width": '{"width": 6}'}


@dataclass
class Case:
    """One lookup: whose source, which cache, and how the module is made."""

    source: str
    cache: str
    keywords: str = "{}"
    change: str = ""


def _serve(cases: dict[str, Case], **environ: str) -> dict[str, dict[str, Any]]:
    """Look all cases up in one fresh process; every result must be eager's."""
    environ = {"PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONDONTWRITEBYTECODE": "1", **environ}
    order = json.dumps([asdict(case) for case in cases.values()])
    reports = dict(zip(cases, run_python(CODE, order, environ=environ), strict=True))
    for name, report in reports.items():
        assert report["right"], f"{name}: the result is not eager's"
    return reports


def _project(folder: Path, edit: tuple[Any, ...] | None = None) -> str:
    folder.mkdir()
    files = {"model.py": MODEL, "callee.py": CALLEE}
    if edit is not None:
        file, old, new = edit[:3]
        assert old in files[file]
        files[file] = files[file].replace(old, new)
    for file, text in files.items():
        (folder / file).write_text(text)
    return str(folder)


@dataclass
class Served:
    missed: dict[str, dict[str, Any]]
    hit: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """All lookups: the first process compiles, the second meets edits, the third must only hit."""
    root = tmp_path_factory.mktemp("staleness")
    base = Case(_project(root / "base"), str(root / "cache"))
    assert _serve({"base": base})["base"]["traces"] == 1

    def cache(number: int) -> str:
        return str(shutil.copytree(root / "cache", root / f"cache{number}"))

    missing, hitting = {}, {}
    for name, edit in EDITS.items():
        missing[name] = Case(_project(root / f"edit{len(missing)}", edit), cache(len(missing)))
        hitting[f"{name}, undone"] = Case(base.source, missing[name].cache)
        hitting[f"{name}, again"] = missing[name]
    for name, keywords in OTHERS.items():
        missing[name] = Case(base.source, cache(len(missing)), keywords)
        hitting[f"{name}, again"] = missing[name]
    missing["set attribute"] = Case(base.source, cache(len(missing)), change="net.factor = 11.0")
    hitting["set attribute, again"] = missing["set attribute"]
    for name, edit in HARMLESS.items():
        hitting[name] = Case(_project(root / f"harmless{len(hitting)}", edit), base.cache)
    weights = "[parameter.data.normal_() for parameter in net.parameters()]"
    hitting["other weights"] = Case(base.source, base.cache, change=weights)
    hitting["moved"] = Case(str(shutil.copytree(base.source, root / "moved")), base.cache)
    hitting["other folder"] = Case(base.source, base.cache, change=f"os.chdir({str(root)!r})")
    return Served(_serve(missing), _serve(hitting, HOME=str(root)))


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_what_the_trace_went_through_is_a_miss_that_names_it(served: Served, name: str) -> None:
    report = served.missed[name]
    assert report["traces"] == 1
    for word in EDITS[name][3]:
        assert word in report["reasons"][0]


@pytest.mark.parametrize("name", EDITS)
def test_the_variants_before_and_after_an_edit_are_both_kept(served: Served, name: str) -> None:
    for state in ("undone", "again"):
        assert (served.hit[f"{name}, {state}"]["traces"], served.hit[f"{name}, {state}"]["reasons"]) == (0, [])


@pytest.mark.parametrize("name", [*HARMLESS, "other weights", "moved", "other folder"])
def test_what_the_trace_does_not_depend_on_is_a_hit(served: Served, name: str) -> None:
    assert (served.hit[name]["traces"], served.hit[name]["reasons"]) == (0, [])


@pytest.mark.parametrize("name", OTHERS)
def test_another_structure_is_a_miss_that_names_the_component(served: Served, name: str) -> None:
    assert served.missed[name]["traces"] == 1
    assert "module" in served.missed[name]["reasons"][0]
    assert served.hit[f"{name}, again"]["traces"] == 0


def test_an_attribute_set_on_the_instance_is_a_miss_that_names_it(served: Served) -> None:
    assert served.missed["set attribute"]["traces"] == 1
    assert "factor" in served.missed["set attribute"]["reasons"][0]
    assert served.hit["set attribute, again"]["traces"] == 0


def test_no_hit_imports_a_compiler(served: Served) -> None:
    assert [name for name, report in served.hit.items() if report["compilers"]] == []
