"""The list of faults fits the code: each text occurs once, each test exists, each promise is kept by one mechanism."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from benchmarks.faults.every_fault import FAULTS
from tests.support.source_tree import ROOT, place_of


@cache
def _tests_of(path: str) -> dict[str, list[str]]:
    """The test functions of a file, with the names of their markers."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {
        node.name: [ast.unparse(each) for each in node.decorator_list]
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_each_of_forty_promises_has_one_fault() -> None:
    assert len({fault.promise for fault in FAULTS}) == len(FAULTS) >= 40


def test_a_fault_changes_one_place_of_the_code() -> None:
    for fault in FAULTS:
        text = place_of(Path(fault.file)).read_text(encoding="utf-8")
        changed = fault.applied_to(text)
        assert changed != text, fault.promise
        ast.parse(changed)


def test_the_tests_of_a_fault_exist_and_run_by_default() -> None:
    for fault in FAULTS:
        assert 1 <= len(fault.tests) <= 3, fault.promise
        for test in fault.tests:
            path, _, name = test.partition("[")[0].partition("::")
            tests = _tests_of(path)
            assert name in tests if name else tests, test
            assert "pytest.mark.thorough" not in tests.get(name, []), test
