"""Every case of `tests.cases`, in two processes: the result is that of the method, there and then.

The first process compiles each method. The second, of another hash seed, may trace nothing: it loads each, changes the
fact that it depends on, and calls again; and it loads each where the fact is another one already.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.cases.runner import FILES, cases
from tests.support.relaunch import run_python

pytestmark = pytest.mark.slow

#: Which differ between the two processes whatever is done: their hash seed differs, also as an environment variable.
OTHERS = ("the environment as a dictionary", "sorted texts", "the size of a set", "keys are hashed")
#: What a trace asked once, by a call or in a place that no dictionary holds: seen at a load, and after `.refresh()`.
ASKED_ONCE = (
    "a getattr of a module",
    "a result that is assumed constant",
    "a value of a thread",
    "an installed module",
    "the version of a package",
)
#: What none of the changes that are made changes for the method.
UNAFFECTED = (
    "a class that the method does not use",
    "another method of tensors",
    "a member is looked up",
    "torch_compile_was_used",
)

Reports = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reports]:
    """The reports of both processes, by file and by case."""
    root = tmp_path_factory.mktemp("cases")
    child = "from tests.cases.runner import child; child()"
    run_python(child, str(root), "first", compiles=True)
    run_python(child, str(root), "second", environ={"PYTHONHASHSEED": "2"})
    first, second = (json.loads((root / f"{order}.json").read_text()) for order in ("first", "second"))
    return {file: {name: first[file][name] | second[file][name] for name in first[file]} for file in FILES}


def test_each_case_is_as_in_python_or_refused_by_name(met: dict[str, Reports], subtests: pytest.Subtests) -> None:
    """One test: each process that has one of several would start the two processes."""
    for file in FILES:
        for name, case in cases(file).items():
            with subtests.test(f"{file}: {name}"):
                _assert_right(name, case.refused, met[file][name])
                if name not in OTHERS and not (file == "of_sets" and case.refused is None):
                    _assert_hit(met[file][name])
    _assert_most_are_followed(met)
    _assert_what_changes_nothing_stays_a_hit(met)
    # A setting of the compiler is followed wherever a release keeps it.
    assert met["of_settings"]["a setting of the compiler"]["compiled"]["state"] == "traced"


def _assert_right(name: str, refused: str | bool | None, reports: dict[str, dict[str, Any]]) -> None:
    compiled = reports["compiled"]
    if isinstance(refused, str):
        assert compiled["state"] == "refused", compiled
        assert f"`{name}.{name}` cannot be cached" in compiled["detail"]
        assert re.search(refused, compiled["detail"], re.DOTALL), compiled["detail"]
        return
    assert compiled["state"] in (("traced",) if refused is False else ("traced", "refused")), compiled
    if compiled["state"] == "refused":  # the method itself runs ever after
        assert "cannot be cached" in compiled["detail"]
        return
    for way, report in reports.items():
        if way != "changed after the load" or name not in ASKED_ONCE:
            assert report["state"] not in ("wrong", "raw", "refused"), f"{way}: {report}"


def _assert_hit(reports: dict[str, dict[str, Any]]) -> None:
    compiled, again = reports["compiled"], reports["again"]
    if compiled["state"] != "refused" and compiled["expected"] == again["expected"]:
        assert again["state"] == "hit", again


def _assert_most_are_followed(met: dict[str, Reports]) -> None:
    states = {
        name: met[file][name]["compiled"]["state"]
        for file in FILES
        for name, case in cases(file).items()
        if case.refused is None and not case.writes
    }
    refused = [name for name, state in states.items() if state == "refused"]
    assert len(refused) < len(states) / 6, refused


def _assert_what_changes_nothing_stays_a_hit(met: dict[str, Reports]) -> None:
    reports = {name: report for file in FILES for name, report in met[file].items()}
    for name in UNAFFECTED:
        assert reports[name]["again"]["state"] == reports[name]["changed before the load"]["state"] == "hit", name
        assert reports[name]["changed after the load"]["state"] == "served", name
