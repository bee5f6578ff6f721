"""Every scenario of `tests.scenarios` gives what eager gives: where it is compiled, and relaunched without a trace."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.relaunch import each_cold_and_warm, order

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@dataclass(frozen=True)
class Module:
    """How the scenarios of a module are run; those that are not kept run with THOROUGH=1 only."""

    tolerance: float = 0.0
    kept: Container[str] | None = None


#: Modules of which each test runs all, with one relaunch.
TESTS = {
    "calls": {
        "arguments": Module(),
        "counters": Module(),
        "geared": Module(),
        "input_signatures": Module(),
        "numbers": Module(),
        "padded": Module(1e-6),
        "shapes": Module(),
        "symbols": Module(),
        "varying": Module(),
    },
    "state": {
        # `test_plain_generate` has a Llama, `test_repeated` layers that know their number, `test_sentences` a BERT.
        "attached": Module(1e-6, ("a_convolutional_net", "an_encoder_of_torch")),
        "given_modules": Module(),
        "names": Module(),
        "odd": Module(),
        "own_state": Module(),
        "reads": Module(),
        "results": Module(),
    },
}


@pytest.fixture
def _limit() -> Iterator[None]:
    """The limit of recursion as after `torch.compile` in this process; a relaunch never compiles.

    Assigning to buffers asks for it.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("test", TESTS)
def test_scenarios_are_right_cold_and_relaunched(test: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    if os.environ.get("THOROUGH"):  # models of `attached` are of it
        pytest.importorskip("transformers")
    orders = [
        order(f"tests.scenarios.{name}", tmp_path / name, tolerance=module.tolerance, kept=module.kept)
        for name, module in TESTS[test].items()
    ]
    for ordered, outcome in zip(orders, each_cold_and_warm(orders), strict=True):
        functions = vars(importlib.import_module(ordered["module"]))
        for scenario in outcome.cold:
            with subtests.test(f"{ordered['module']}: {scenario}"):
                outcome.assert_right(scenario, traces=getattr(functions[scenario], "traces", None))
