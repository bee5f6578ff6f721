"""Grad mode, `no_grad` and `inference_mode` on the compiling and on the serving side, in every pairing.

Each entry is compiled under one mode, with weights and inputs made inside or outside of inference mode, and then serves
every mode and kind of input: in the process that compiled it, and in a fresh one with weights of both kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.models.modes import METHODS
from tests.modes import Case, cases, order_of, serve
from tests.relaunch import run_python


@dataclass
class Served:
    """Reports by case, of the compiling process and of the relaunched one."""

    cold: dict[Case, dict[str, Any]]
    warm: dict[Case, dict[str, Any]]
    imported: list[str]


def _served(chosen: list[Case], root: Path, backend: str = "eager", tolerance: float = 0.0) -> Served:
    cold = {case: serve(case, str(root), backend, relaunched=False, tolerance=tolerance) for case in chosen}
    relaunched = run_python("from tests.modes import child; child()", order_of(chosen, root, backend, tolerance))
    return Served(cold, dict(zip(chosen, relaunched["reports"], strict=True)), relaunched["imported"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return _served(cases(list(METHODS)), tmp_path_factory.mktemp("modes"))


def _assert_right(served: Served, method: str) -> None:
    for case in (case for case in served.cold if case.method == method):
        cold, warm = served.cold[case], served.warm[case]
        assert cold["differences"] == [], case
        assert warm["differences"] == [], case
        assert (cold["entries"], warm["entries"]) == (1, 1), case
        assert cold["traces"] == cold["traces of the first call"], case
        assert (warm["traces"], warm["misses"]) == (0, 0), case


@pytest.mark.parametrize("method", METHODS)
def test_one_entry_serves_every_mode_as_eager_does_without_another_trace(served: Served, method: str) -> None:
    _assert_right(served, method)


def test_no_relaunched_call_of_any_mode_imports_a_compiler(served: Served) -> None:
    assert served.imported == []


def test_inference_tensors_are_refused_where_they_are_written_outside_of_inference_mode(served: Served) -> None:
    writing = {"writes", "dynamic writes", "padded writes", "step", "counts", "returns what it writes"}
    for reports in (served.cold, served.warm):
        assert {case.method for case, report in reports.items() if report["refusals"]} == writing
