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


#: Modules of which each test runs all, with one relaunch. What is left to THOROUGH=1 shows a mechanism once more.
TESTS = {
    "calls": {
        "arguments": Module(),
        "counters": Module(),
        "geared": Module(kept=("gears_of_at_least_two", "first_call_at_one", "marked_tensors", "decorated_method")),
        "input_signatures": Module(kept=("the_example_of_the_seed", "lists_and_dicts_of_specs")),
        "numbers": Module(kept=("a_branch", "arithmetic", "gears", "results_and_containers", "an_int_in_an_argument")),
        "padded": Module(
            1e-6,
            (
                "rows_are_padded_and_cut",
                "attention_over_a_padded_batch",
                "a_cache_that_is_written_in_place",
                "results_that_are_inputs_or_views",
            ),
        ),
        "shapes": Module(kept=("marked_range", "dims_that_change", "dims_named_by_the_settings")),
        "symbols": Module(kept=("one_symbol_on_two_inputs_makes_one_list_of_gears", "gears_beside_a_range")),
        "varying": Module(kept=("a_decode_step", "a_cache_of_another_size")),
    },
    "state": {
        # `test_generate` has a Mistral, `test_repeated` layers that know their number, `test_sentences` a BERT.
        "attached": Module(1e-6, ("a_convolutional_net",)),
        "given_modules": Module(),
        "names": Module(
            kept=(
                "every_name_as_a_parameter",
                "every_name_as_attribute_global_closure_and_key",
                "attributes_called_like_methods_of_modules",
            )
        ),
        "odd": Module(),
        "own_state": Module(kept=("buffers", "buffers_and_gears", "children_and_parameters", "everything_else")),
        "reads": Module(kept=("everything_read_of_a_tensor_is_compared", "one_object_or_two_is_seen")),
        "results": Module(),
        "retyped": Module(),
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
