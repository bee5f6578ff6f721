"""The arithmetic of the benchmarks' rows, and that `python -m benchmarks` runs."""

from __future__ import annotations

import pytest

from benchmarks._sample import Budget, Ratio, Sample


def _seconds(value: float) -> Sample:
    return Sample.of("x", [value], "s")


def test_a_sample_holds_median_and_nearest_rank_and_needs_a_value() -> None:
    sample = Sample.of("x", [float(value) for value in range(100, 0, -1)], "s")
    assert (sample.median, sample.p95) == (50.5, 95.0)
    with pytest.raises(ValueError, match="sample `x` has no values"):
        Sample.of("x", [], "s")


@pytest.mark.parametrize(
    "budget, met, text",
    [
        pytest.param(Budget(), None, "", id="none"),
        pytest.param(Budget(ratio_at_least=100), True, "≥ 100×", id="ratio kept"),
        pytest.param(Budget(100, 0.01), False, "≤ 10.0 ms, ≥ 100×", id="one of two missed"),
    ],
)
def test_a_budget_is_kept_when_all_of_it_is(budget: Budget, met: bool | None, text: str) -> None:
    row = Ratio("x", _seconds(6.0), _seconds(0.02), budget)
    assert (row.met, row.budget_text) == (met, text)
