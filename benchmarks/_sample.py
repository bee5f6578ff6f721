"""The results of a benchmark and their comparison: samples, rows of ratios, the table, the line about the host."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Units in which more is better; in all others, less is better.
RATES = ("tokens/s",)


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one thing."""

    name: str
    median: float
    p95: float
    unit: str

    @classmethod
    def of(cls, name: str, values: Sequence[float], unit: str) -> Sample:
        """Return the sample of at least one value; `p95` is one of the values (nearest rank)."""
        if not values:
            raise ValueError(f"sample `{name}` has no values")
        ordered = sorted(values)
        rank = max(0, math.ceil(0.95 * len(ordered)) - 1)
        return cls(name, statistics.median(ordered), ordered[rank], unit)

    @property
    def text(self) -> str:
        """The median with its unit, to three figures; seconds in a readable unit."""
        if self.unit == "s":
            for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
                if abs(self.median) * factor >= 1 or unit == "µs":
                    return f"{_three_figures(self.median * factor)} {unit}"
        return f"{_three_figures(self.median)} {self.unit}"


@dataclass(frozen=True)
class Budget:
    """The requirements of a row: at least this ratio, and at most this value of ours (in its unit)."""

    ratio_at_least: float | None = None
    ours_at_most: float | None = None


NO_BUDGET = Budget()


@dataclass(frozen=True)
class Ratio:
    """One row: a peer's sample beside ours. Either may be missing: we have no peer, or the peer failed."""

    what: str
    peer: Sample | None
    ours: Sample | None
    budget: Budget = NO_BUDGET

    @property
    def ratio(self) -> float | None:
        """How many times better ours is; None if one of the two is missing or zero."""
        if self.peer is None or self.ours is None:
            return None
        better, worse = (self.ours, self.peer) if self.ours.unit in RATES else (self.peer, self.ours)
        return better.median / worse.median if worse.median > 0 and better.median > 0 else None

    @property
    def met(self) -> bool | None:
        """Whether the budget is met; None if there is no budget, or no value to compare."""
        checks: list[bool] = []
        if self.budget.ours_at_most is not None and self.ours is not None:
            checks.append(self.ours.median <= self.budget.ours_at_most)
        if self.budget.ratio_at_least is not None and self.ratio is not None:
            checks.append(self.ratio >= self.budget.ratio_at_least)
        return all(checks) if checks else None

    @property
    def budget_text(self) -> str:
        """The budget as text."""
        texts = []
        if self.budget.ours_at_most is not None:
            unit = self.ours.unit if self.ours is not None else ""
            texts.append(f"≤ {Sample('', self.budget.ours_at_most, 0.0, unit).text}")
        if self.budget.ratio_at_least is not None:
            texts.append(f"≥ {self.budget.ratio_at_least:g}×")
        return ", ".join(texts)


def _three_figures(value: float) -> str:
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 3)}f}"


def environment_line() -> str:
    """Return the host, the versions and the commit of the figures."""
    import torch

    parts = [
        _processor(),
        f"{os.cpu_count()} cores",
        f"load {os.getloadavg()[0]:.1f}",
        f"torch {importlib.metadata.version('torch')}",
        f"Python {platform.python_version()}",
        f"{torch.get_num_threads()} threads",
        f"commit {_commit()}",
    ]
    return ", ".join(parts)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    root = Path(__file__).resolve().parent.parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def print_table(rows: Sequence[Ratio]) -> None:
    """Print every row, and the line about the host."""
    import sys

    from rich.console import Console
    from rich.table import Table

    table = Table(title="gearcache beside its peers (ratio: how many times better ours is)")
    table.add_column("what")
    for name in ("peer", "ours", "ratio", "budget"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("met", justify="center")
    previous = ""
    for row in rows:
        section = row.what.partition(":")[0]
        if previous and section != previous:
            table.add_section()
        previous = section
        ratio = f"{_three_figures(row.ratio)}×" if row.ratio is not None else "–"
        texts = [sample.text if sample is not None else "–" for sample in (row.peer, row.ours)]
        table.add_row(row.what, *texts, ratio, row.budget_text, {None: "", True: "yes", False: "NO"}[row.met])
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(table)
    console.print(environment_line(), soft_wrap=True, highlight=False)
    console.print(
        "Other work on the host spoils these figures, threads above all: trust them at a load of about 1.",
        soft_wrap=True,
    )
