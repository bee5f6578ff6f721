"""A fact of the process that a method depends on changes: the result is that of the method, there and then.

The first process compiles each module of `tests/projects/process`. The second, of another hash seed, may trace nothing:
it loads each, changes its fact, and calls again; and it loads each where the fact is another one already.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.process_facts import facts
from tests.support.relaunch import run_python

pytestmark = pytest.mark.slow

#: Which differ between the two processes whatever is done: their hash seed differs, also as an environment variable.
OTHERS = ("sets.", "surroundings.TheEnvironmentAsADictionary", "surroundings.TheHashSeed")


#: What a trace asked once, by a call or in a place that no dictionary holds: seen at a load, and after `.refresh()`.
ASKED_ONCE = (
    "classes.SubclassesAreCounted",
    "surroundings.AModulesGetattr",
    "surroundings.AThreadLocal",
)
TORCH_COMPILE = "library.TorchCompileWasUsed"


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The reports of both processes by fact."""
    code, root = "from tests.support.process_facts import child; child()", str(tmp_path_factory.mktemp("facts"))
    first = run_python(code, root, "first", environ={"PYTHONHASHSEED": "1"})
    second = run_python(code, root, "second", environ={"PYTHONHASHSEED": "2"})
    return {name: first[name] | second[name] for name in first}


@pytest.mark.parametrize("name", facts())
def test_the_result_is_that_of_the_method_in_its_process(met: dict[str, dict[str, Any]], name: str) -> None:
    compiled = met[name]["plain"]
    assert compiled["state"] in ("traced", "refused"), compiled
    if compiled["state"] == "refused":  # the method itself runs ever after
        assert "cannot be cached" in compiled["detail"]
        return
    for way, report in met[name].items():
        if way == "changed after the load" and name.startswith(ASKED_ONCE):
            continue
        assert report["state"] not in ("wrong", "raw", "refused"), f"{way}: {report}"


@pytest.mark.parametrize("name", [name for name in facts() if not name.startswith(OTHERS)])
def test_an_equal_process_hits(met: dict[str, dict[str, Any]], name: str) -> None:
    report = met[name]
    if report["plain"]["state"] != "refused" and report["plain"]["expected"] == report["again"]["expected"]:
        assert report["again"]["state"] == "hit", report["again"]


def test_most_facts_are_followed_and_not_refused(met: dict[str, dict[str, Any]]) -> None:
    refused = [name for name in facts() if met[name]["plain"]["state"] == "refused"]
    assert len(refused) < len(facts()) / 6, refused


def test_what_a_method_does_not_depend_on_stays_a_hit(met: dict[str, dict[str, Any]]) -> None:
    for name in (
        "classes.ATensorIsUnaffected",
        "library.AnUnrelatedTensorMethod",
        "sets.AMemberIsLookedUp",
        TORCH_COMPILE,
    ):
        assert met[name]["again"]["state"] == met[name]["changed before the load"]["state"] == "hit", name
        assert met[name]["changed after the load"]["state"] == "served", name


def test_a_setting_of_the_compiler_is_followed_wherever_a_release_keeps_it(met: dict[str, dict[str, Any]]) -> None:
    assert met["settings.ASettingOfTheCompilerThatIsRead"]["plain"]["state"] == "traced"
