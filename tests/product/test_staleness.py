"""What makes an entry stale, and what must not: the table of `tests.support.staleness`, in three processes.

The first process compiles every method. The second meets each change with a copy of that cache and has to compile
again, for the right reason and with the right result. The third meets everything again and must only hit.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.relaunch import run_python
from tests.support.staleness.calls import CALLS, EXPECTED, OTHER_CALLS, OTHER_PARAMETERS
from tests.support.staleness.change import CHANGES, HITTING
from tests.support.staleness.edits import EDITS, HARMLESS, Edit
from tests.support.staleness.serve import PROJECT, Case

pytestmark = pytest.mark.slow

MODULES = {"another dtype": "dtype=torch.float64"}
MISSING = [*EDITS, *CHANGES, *OTHER_PARAMETERS, *OTHER_CALLS, *MODULES]
STAYING = [*HARMLESS, *HITTING, "moved source", "moved cache", "another hash seed", "another home"]


def tried(names: Iterable[str]) -> list[str]:
    """Return the rows that this run tries: every second, as tests/cases and tests/cache/keys show most of them too."""
    return [*names][:: 1 if os.environ.get("THOROUGH") else 2]


@dataclass
class Served:
    """Reports by name: of the misses, of what hits, and of what hits once the misses were compiled."""

    base: dict[str, dict[str, Any]]
    missed: dict[str, dict[str, Any]]
    hit: dict[str, dict[str, Any]]
    kept: dict[str, dict[str, Any]]


def _serve(
    folder: Path, cases: dict[str, Case], *, compiles: bool = False, **environ: str
) -> dict[str, dict[str, Any]]:
    order = folder / "order.json"
    order.write_text(json.dumps([asdict(case) for case in cases.values()]))
    environ = {"PYTHONDONTWRITEBYTECODE": "1", **environ}
    code = "from tests.support.staleness.serve import child; child()"
    reports = run_python(code, str(order), environ=environ, compiles=compiles)
    return dict(zip(cases, reports, strict=True))


def _project(folder: Path, edit: Edit | None = None) -> str:
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if edit is not None:
        text = (folder / edit.file).read_text()
        assert edit.old in text, f"{edit.file} holds no {edit.old!r}"
        (folder / edit.file).write_text(text.replace(edit.old, edit.new))
    for name in ("blocks", "callee"):
        shutil.copy(folder / f"{name}.py", folder / f"{name}2.py")
    return str(folder)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """All lookups."""
    root = tmp_path_factory.mktemp("staleness")
    source, cache = _project(root / "base"), root / "cache"
    base = _serve(root, {method: Case(source, str(cache), method) for method in CALLS}, compiles=True)

    def fresh() -> str:
        return str(shutil.copytree(cache, root / f"cache{len(missing)}"))

    missing: dict[str, Case] = {}
    for name in tried(EDITS):
        edit = EDITS[name]
        missing[name] = Case(_project(root / f"edit{len(missing)}", edit), fresh(), edit.method)
    for name in tried(CHANGES):
        expected = EXPECTED.get(name, "")
        missing[name] = Case(source, fresh(), CHANGES[name].method, change=name, expected=expected)
    for name in tried(OTHER_PARAMETERS):
        method, parameters, _ = OTHER_PARAMETERS[name]
        missing[name] = Case(source, fresh(), method, parameters=parameters, expected=EXPECTED.get(name, ""))
    for name in tried(OTHER_CALLS):
        missing[name] = Case(source, fresh(), "arguments", call=OTHER_CALLS[name][0])
    for name, keywords in MODULES.items():
        missing[name] = Case(source, fresh(), "run", keywords=keywords)
    missed = _serve(root, missing, compiles=True)

    staying = {name: Case(source, str(cache), HITTING[name].method, change=name) for name in tried(HITTING)}
    for name in tried(HARMLESS):
        edit = HARMLESS[name]
        staying[name] = Case(_project(root / f"harmless{len(staying)}", edit), str(cache), edit.method)
    staying["moved source"] = Case(str(shutil.copytree(source, root / "moved")), str(cache), "run")
    staying["moved cache"] = Case(source, str(shutil.copytree(cache, root / "moved cache")), "run")
    again = {f"{name}, again": case for name, case in missing.items()}
    again |= {f"{name}, undone": Case(source, missing[name].cache, missing[name].method) for name in tried(EDITS)}
    hit = _serve(root, staying, PYTHONHASHSEED="1")
    hit |= {"another hash seed": hit["moved source"]}
    kept = _serve(root, {**again, "another home": replace(staying["moved cache"])}, HOME=str(root))
    hit["another home"] = kept.pop("another home")
    return Served(base, missed, hit, kept)


def _right(report: dict[str, Any], state: str = "the result") -> dict[str, Any]:
    assert report["error"] is None, report["error"]
    assert report["right"], f"{state} is not eager's"
    return report


def _words(name: str) -> tuple[str, ...]:
    if name in EDITS:
        return EDITS[name].words
    if name in CHANGES:
        return CHANGES[name].words
    if name in OTHER_PARAMETERS:
        return (OTHER_PARAMETERS[name][2],)
    return (OTHER_CALLS[name][1],) if name in OTHER_CALLS else ("module",)


def test_the_table_is_as_long_as_promised() -> None:
    assert len(set(MISSING)) == len(MISSING) >= 60
    assert len(set(STAYING)) == len(STAYING) >= 25


def test_a_miss_names_what_changed_and_everything_else_hits(served: Served, subtests: pytest.Subtests) -> None:
    """One test: the lookups take a minute, and each process that has one of several would make them."""
    for method in CALLS:
        with subtests.test("compiled first", method=method):
            assert _right(served.base[method])["traces"] == 1
    for name in served.missed:
        with subtests.test("a miss that names it", name=name):
            report = _right(served.missed[name])
            assert report["traces"] >= 1
            for word in _words(name):
                assert word in " ".join(report["reasons"])
        for state in ("again", "undone") if name in EDITS else ("again",):
            with subtests.test("kept", name=name, state=state):
                report = _right(served.kept[f"{name}, {state}"], state)
                assert (report["traces"], report["reasons"]) == (0, [])
    for name in served.hit:
        with subtests.test("a hit", name=name):
            report = _right(served.hit[name])
            assert (report["traces"], report["reasons"]) == (0, [])
    reports = {**served.hit, **served.kept}
    assert [name for name, report in reports.items() if report["compilers"]] == []
