"""Every scenario of `tests.scenarios` gives what eager gives: where it is compiled, and relaunched without a trace."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.relaunch import cold_and_warm

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@dataclass(frozen=True)
class Module:
    """How the scenarios of a module are run; those that are not kept run with THOROUGH=1 only."""

    tolerance: float = 0.0
    kept: Container[str] | None = None
    needs: str = "torch"


MODULES = {
    "arguments": Module(),
    # `test_plain_generate` has a Llama, `test_repeated` layers that know their number, `test_sentences` a BERT that is
    # padded, and pooled.
    "attached": Module(
        1e-6,
        ("a_convolutional_net", "a_padded_distilbert", "an_encoder_of_torch", "layers_of_a_bert"),
        "transformers",
    ),
    "counters": Module(),
    "geared": Module(),
    "given_modules": Module(),
    "input_signatures": Module(),
    "names": Module(),
    "numbers": Module(),
    "odd": Module(),
    "own_state": Module(),
    "padded": Module(1e-6),
    "reads": Module(),
    "results": Module(),
    "shapes": Module(),
    "symbols": Module(),
    "varying": Module(),
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
@pytest.mark.parametrize("name", MODULES)
def test_scenarios_are_right_cold_and_relaunched(name: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    module = MODULES[name]
    pytest.importorskip(module.needs)
    path = f"tests.scenarios.{name}"
    outcome = cold_and_warm(path, tmp_path, tolerance=module.tolerance, kept=module.kept)
    functions = vars(importlib.import_module(path))
    for scenario in outcome.cold:
        with subtests.test(scenario):
            outcome.assert_right(scenario, traces=getattr(functions[scenario], "traces", None))
