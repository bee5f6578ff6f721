"""Random methods, options and calls, as `make fuzz` draws them: cold, launched again and eager results are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzz.varying.compose import draw_case
from benchmarks.fuzz.varying.run import run_launches
from tests.support import sampled


@pytest.mark.slow
def test_what_the_fuzzer_draws_is_as_in_eager(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The last launch of each repeats all calls, and may trace nothing."""
    calls = 0
    for number in range(sampled.examples(9)):
        with subtests.test(number=number):
            case, folder = draw_case(f"product:{number}", "eager"), tmp_path / str(number)
            folder.mkdir()
            report = run_launches(case, range(len(case.phases)), folder)
            assert (report.failure, report.invalid) == (None, "")
            calls += report.calls
    assert calls > 10
