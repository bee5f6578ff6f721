"""Values of which a run with `THOROUGH=1` tries all, and every other run a few that show the same."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], kept: Container[Any]) -> list[Any]:
    """Return values for `parametrize`: those that are not kept are for a thorough run."""
    return [value if value in kept else pytest.param(value, marks=pytest.mark.thorough) for value in values]


def sampled_rows(rows: Iterable[tuple[Any, ...]], kept: Container[Any]) -> list[Any]:
    """Return rows for a `parametrize` of several names, as `sampled`."""
    return [row if row in kept else pytest.param(*row, marks=pytest.mark.thorough) for row in rows]


def examples(count: int) -> int:
    """Return how many random examples this run tries: a third of `count` unless it is a thorough one."""
    return count if os.environ.get("THOROUGH") else count // 3


def chosen(values: Iterable[Any], kept: Container[Any]) -> list[Any]:
    """Return the values that this run tries."""
    return [value for value in values if value in kept or os.environ.get("THOROUGH")]
