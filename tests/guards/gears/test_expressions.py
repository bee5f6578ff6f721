"""Only arithmetic over sizes is ever evaluated."""

from __future__ import annotations

import pytest

from gearcache.guards.gears.expressions import checked_expression


def test_arithmetic_over_sizes_is_admitted_as_it_is() -> None:
    for text in ("s12", "2*s0 + 1", "-s0 // 2 % 3", "max(s0, s1)", "min(1, s0)", "s0 == s1 and not s0 > 2", "s0**2"):
        assert checked_expression(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "'a'", "[s0]", "f'{s0}'", "s0[0]", "s0 @ s1", "s0.real", "max.__class__", "__import__('os')"),
        *("max(*s0)", "(lambda: s0)()", "s0 if s0 else open", "s0 = 1", "(s0 := 1)"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an expression over sizes"):
        checked_expression(text)
