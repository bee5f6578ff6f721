"""Kernels that a program puts in place of torch's own: never a stale graph, and a refusal where no graph can follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.relaunch import IMPORT_MUCH_OF_TORCH, run_python


def test_a_process_has_none_whatever_of_torch_it_imports() -> None:
    code = (
        f"{IMPORT_MUCH_OF_TORCH}\n"
        "from gearcache.guards.evidence.overrides import overrides_component\n"
        "print(json.dumps(overrides_component('Net.run', compiled=True)))"
    )
    assert run_python(code, compiles=True) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "a_kernel_above_the_device_is_refused_where_a_compiler_takes_the_graph",
        "without_a_compiler_it_is_called_as_the_process_has_it",
        "a_composite_that_the_device_has_a_kernel_for_is_another_key",
        "a_kernel_of_a_device_alone_changes_nothing",
        "meta_kernels_are_compared",
        "fakes_are_compared",
        "a_kernel_need_not_take_what_has_a_default",
        "a_function_that_tells_sizes_and_uses_what_nothing_can_compare_is_refused",
        "a_fallback_for_all_operators_is_refused",
    ],
)
def test_case(case: str, cache_dir: Path) -> None:
    code = "from tests.scenarios import overridden; overridden.run()"
    assert run_python(code, case, str(cache_dir), compiles=True) == case
