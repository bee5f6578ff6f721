"""The fuzzer of sizes and ints that change: its cases follow from a seed, and it finds what was planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzz.case import Case, Phase, Report, Step
from benchmarks.fuzz.varying import run
from benchmarks.fuzz.varying.compose import draw_case
from benchmarks.fuzz.varying.run import run_launches

SOURCE = """
import torch
from benchmarks.fuzz.world import cached

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.times = 2

    @cached(OPTIONS)
    def compute(self, x, n):
        return x[:, :n] * self.times, n + 1
"""
BUILD = Step("build", "m = s.Model()")
STATIC = "dynamic=False"
GEARS = "dynamic=False, gears={'x': {0: [2]}}"


def called(*calls: tuple[int, int], before: str = "pass", number: int = 0) -> tuple[Step, ...]:
    """The steps of calls with these sizes and ints."""
    steps = [BUILD, Step("state", before)]
    for index, (size, n) in enumerate(calls, number):
        steps += [
            Step("arguments", f"p0 = tensor(({size}, 4), 1)"),
            Step("call", f"out{index} = run(m.compute, p0, {n})"),
        ]
    return tuple(steps)


def ran(
    folder: Path, options: str, *launches: tuple[Step, ...], count_peer: bool = False, source: str = SOURCE
) -> Report:
    """Run a written case; the last of several launches may trace nothing."""
    source = source.replace("OPTIONS", options)
    last = len(launches) - 1
    phases = tuple(Phase(source, steps, index == last > 0) for index, steps in enumerate(launches))
    case = Case("varying_written", "", "eager", phases, (options,))
    return run_launches(case, range(len(phases)), folder, count_peer=count_peer)


def kind(found: Report) -> str:
    return found.failure.kind if found.failure else found.invalid


def test_a_case_follows_from_its_seed_and_its_last_launch_repeats_all_calls() -> None:
    case = draw_case("7:3", "eager")
    assert case == draw_case("7:3", "eager")
    assert case != draw_case("7:4", "eager")
    assert Case.from_text(case.to_text()) == case
    *launches, last = case.phases
    assert last.hits
    texts = [sorted(step.text for step in phase.steps if step.label == "call") for phase in (last, *launches)]
    assert texts[0] == sorted(text for each in texts[1:] for text in each)


def test_calls_that_are_served_right_are_no_failure(tmp_path: Path) -> None:
    found = ran(tmp_path, STATIC, called((2, 3), (3, 3)), called((3, 3), (2, 3)), count_peer=True)
    assert kind(found) == ""
    assert (found.calls, found.events["trace"], found.events["graphs"]) == (4, 2, 2)
    assert found.events["cases compared"] == 1


def test_a_planted_difference_is_found(tmp_path: Path) -> None:
    stale = "if s.__name__.endswith('_plain'): s.Model.compute = lambda self, x, n: (x[:, :n] * 3.0, n + 1)"
    found = ran(tmp_path, STATIC, called((2, 3), before=stale))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.detail) == ("value", "result")


def test_a_relaunch_that_traces_is_found(tmp_path: Path) -> None:
    assert kind(ran(tmp_path, STATIC, called((2, 3)), called((2, 3), (5, 3)))) == "traced again"


def test_more_graphs_than_those_of_torch_compile_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "peer_graphs", lambda case, folder: 1)
    assert kind(ran(tmp_path, STATIC, called((2, 3), (3, 3)), called((2, 3)), count_peer=True)) == "graphs"
