"""The arithmetic of the benchmarks' rows, and that `python -m benchmarks` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._process import _MemoryWatch, peak_megabytes, resident
from benchmarks._sample import Budget, Ratio, Sample
from tests.support.source_tree import ROOT


def _seconds(value: float) -> Sample:
    return Sample.of("x", [value], "s")


def test_a_sample_holds_median_and_nearest_rank_and_needs_a_value() -> None:
    sample = Sample.of("x", [float(value) for value in range(100, 0, -1)], "s")
    assert (sample.median, sample.p95) == (50.5, 95.0)
    with pytest.raises(ValueError, match="sample `x` has no values"):
        Sample.of("x", [], "s")


@pytest.mark.parametrize(
    "value, unit, text",
    [
        pytest.param(12.34, "s", "12.3 s", id="seconds"),
        pytest.param(0.01234, "s", "12.3 ms", id="milliseconds"),
        pytest.param(1.5e-6, "s", "1.50 µs", id="microseconds"),
        pytest.param(0.0, "s", "0 µs", id="nothing"),
        pytest.param(1234.5, "MB", "1,234 MB", id="megabytes"),
    ],
)
def test_a_sample_is_written_to_three_figures(value: float, unit: str, text: str) -> None:
    assert Sample.of("x", [value], unit).text == text


def test_a_ratio_is_how_many_times_better_ours_is() -> None:
    assert Ratio("time", _seconds(6.0), _seconds(0.02)).ratio == pytest.approx(300)
    rates = [Sample.of("x", [value], "tokens/s") for value in (20.0, 30.0)]
    assert Ratio("rate", rates[0], rates[1]).ratio == pytest.approx(1.5)


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


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_memory_is_read_of_this_process_and_of_those_below_another() -> None:
    sizes = resident()
    assert 0 < sizes["private"] <= sizes["all"]
    assert peak_megabytes("self") > 0
    assert peak_megabytes(2**30) == 0.0
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input(bytearray(2**26)[:0])'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    watch = _MemoryWatch(process.pid)
    watch.start()
    watch.wait_for(1, 30)
    process.stdin.close()
    process.wait(30)
    watch.stop()
    assert [peak.program.startswith("python") for peak in watch.others()] == [True]


def test_an_unknown_section_is_refused() -> None:
    done = _benchmarks("warm")
    assert done.returncode == 2
    assert "no section `warm`" in done.stderr


def _benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
