"""Only arithmetic over sizes is ever evaluated."""

from __future__ import annotations

import pytest

from gearcache.guards.gears.expressions import checked_expression


@pytest.mark.parametrize(
    "text",
    [
        "s0",
        "s12 >= 2",
        "2*s0 + 1",
        "s0 // 2 % 3",
        "-s0",
        "max(s0, s1)",
        "min(1, s0)",
        "s0 == s1 and s0 > 2",
        "s0**2",
        "not s0 > 3",
    ],
)
def test_arithmetic_over_sizes_is_admitted_as_it_is(text: str) -> None:
    assert checked_expression(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "s",
        "sx",
        "s0.real",
        "__import__('os')",
        "max.__class__",
        "max(*s0)",
        "max(key=s0)",
        "(lambda: s0)()",
        "[s0]",
        "s0[0]",
        "'a'",
        "1j",
        "s0 if s0 else open",
        "s0; s1",
        "s0 = 1",
        "(s0 := 1)",
        "{s0}",
        "f'{s0}'",
        "s0 @ s1",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an expression over sizes"):
        checked_expression(text)
