"""Every scenario of `tests.scenarios` gives what eager gives: where it is compiled, and relaunched without a trace."""

from __future__ import annotations

import importlib
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
        "shapes": Module(),
        "symbols": Module(),
        # `a_decode_step` takes the same steps, and `a_cache_of_another_size` others, begun static.
        "varying": Module(kept=("a_decode_step", "texts_of_other_lengths", "a_cache_of_another_size")),
    },
    "state": {
        "given_modules": Module(),
        "names": Module(),
        "odd": Module(),
        "own_state": Module(),
        "reads": Module(),
        "results": Module(),
    },
    "padded": {"padded": Module(1e-6)},
    # `test_generate` has a Mistral, `test_repeated` layers that know their number, `test_sentences` a BERT that is
    # padded, and pooled.
    "attached": {"attached": Module(1e-6, ("a_convolutional_net", "an_encoder_of_torch", "layers_of_a_bert"))},
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
    if test == "attached":
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
