"""A second process that differs in one fact which the method depends on: the result is that of the method there.

The first process compiles each module of `tests/projects/process` twice, as it is and with its fact changed. The second
has another hash seed; it meets each module changed with what was compiled unchanged, and the other way round.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.process_facts import facts
from tests.relaunch import run_python


class Reports:
    """The reports of both processes by fact; the processes of a file run when one of its facts is asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        file = name.partition(".")[0]
        if file not in self._files:
            code = "from tests.process_facts import child; child()"
            arguments = (str(self._root), file)
            first = run_python(code, *arguments, "first", environ={"PYTHONHASHSEED": "1"})
            second = run_python(code, *arguments, "second", environ={"PYTHONHASHSEED": "2"})
            self._files[file] = {each: first[each] | second[each] for each in first}
        reports: dict[str, Any] = self._files[file][name]
        return reports


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """All reports."""
    return Reports(tmp_path_factory.mktemp("facts"))


@pytest.mark.parametrize("name", facts())
def test_the_result_is_that_of_the_method_in_its_process(met: Reports, name: str) -> None:
    for way, report in met[name].items():
        assert report["state"] in ("hit", "traced", "refused"), f"{way}: {report}"
        if report["state"] == "refused":
            assert "cannot be cached" in report["detail"]


#: Which differ between the two processes whatever is done: their hash seed differs, also as an environment variable.
OTHERS = ("sets.", "surroundings.TheEnvironmentAsADictionary", "surroundings.TheHashSeed")


@pytest.mark.parametrize("name", [name for name in facts() if not name.startswith(OTHERS)])
def test_an_equal_process_hits(met: Reports, name: str) -> None:
    report = met[name]
    if report["plain"]["state"] != "refused" and report["plain"]["expected"] == report["again"]["expected"]:
        assert report["again"]["state"] == "hit", report["again"]


def test_most_facts_are_followed_and_not_refused(met: Reports) -> None:
    refused = [name for name in facts() if met[name]["plain"]["state"] == "refused"]
    assert len(refused) < len(facts()) / 6, refused


def test_what_a_method_does_not_depend_on_stays_a_hit(met: Reports) -> None:
    for name in ("classes.ATensorIsUnaffected", "library.AnUnrelatedTensorMethod", "sets.AMemberIsLookedUp"):
        assert [met[name][way]["state"] for way in ("to changed", "to plain", "again")] == ["hit"] * 3, name
