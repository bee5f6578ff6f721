"""The module fuzzer itself: its comparison sees differences, its cases run, and what it takes away is where it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.fuzz.campaign import Silence
from benchmarks.fuzz.case import Case, Phase, Step
from benchmarks.fuzz.compare import Comparison, Different
from benchmarks.fuzz.compose import draw_case
from benchmarks.fuzz.put_back import BUGS, _in_place, put_back
from benchmarks.fuzz.run_case import run_phase
from tests.support.forks import run_in_fork

ASKS = "print(1, flush=True); input()"
SOURCE = """
import torch
from benchmarks.fuzz.world import cached

FACTOR = 2.0

class Model(torch.nn.Module):
    @cached(dynamic=False)
    def compute(self, x, y):
        unused = y + 1.0
        return x * FACTOR
"""
STEPS = (
    Step("build", "m = s.Model()"),
    Step("arguments", "p0 = tensor((2, 4), 1)\np1 = tensor((2, 4), 2)"),
    Step("call", "out1 = run(m.compute, p0, p1)"),
)


def kind(left: Any, right: Any) -> str:
    """What the comparison says of two values."""
    try:
        Comparison({}).compare(left, right, "value")
    except Different as difference:
        return difference.kind
    return "equal"


def shared(*, is_shared: bool) -> list[torch.Tensor]:
    base = torch.ones(4)
    return [base, base[:2] if is_shared else torch.ones(2)]


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        (torch.ones(2), torch.ones(2), "equal"),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), "equal"),
        (torch.tensor([0.0]), torch.tensor([-0.0]), "value"),
        (torch.ones(2), torch.ones(2).double(), "dtype"),
        (torch.ones(2, 3), torch.ones(3, 2).T, "stride"),
        (torch.ones(2), torch.ones(3)[1:], "offset"),
        (torch.ones(2), torch.nn.Parameter(torch.ones(2)), "type"),
        (shared(is_shared=True), shared(is_shared=False), "memory"),
        ([[1]] * 2, [[1], [1]], "identity"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "keys"),
        (1, True, "type"),
        (0.0, -0.0, "scalar"),
        (torch.nn.Linear(2, 2).train(), torch.nn.Linear(2, 2).eval(), "scalar"),
    ],
)
def test_the_comparison_tells_what_differs(left: Any, right: Any, found: str) -> None:
    assert kind(left, right) == found


def test_a_case_follows_from_its_seed() -> None:
    assert draw_case("7:3", "eager") == draw_case("7:3", "eager")
    assert Case.from_text(draw_case("7:3", "eager").to_text()) == draw_case("7:3", "eager")


def test_a_method_that_is_cached_right_is_no_failure(tmp_path: Path) -> None:
    report = run_phase(Case("fuzz_right", "", "eager", (Phase(SOURCE, STEPS),)), 0, tmp_path)
    assert (report.failure, report.invalid, report.calls) == (None, "", 1)


def test_a_worker_that_tells_nothing_is_killed() -> None:
    silence = Silence(0.7)
    with subprocess.Popen(
        [sys.executable, "-c", ASKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert list(silence.lines(process)) == ["1\n"]
    assert silence.is_over
    assert process.returncode == -9


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_each_mechanism_can_be_taken_away() -> None:
    for name in BUGS:
        assert run_in_fork(lambda name=name: put_back(name)) == 0, name  # for the rest of a process


def test_a_mechanism_that_has_moved_is_named() -> None:
    with pytest.raises(AttributeError, match=r"`gearcache.guards.keys` has no `unknown`"):
        _in_place("guards.keys", "unknown", None)
