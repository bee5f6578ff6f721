"""Sizes and ages as users write them."""

from __future__ import annotations

import pytest

from gearcache.cache.quantities import parse_age, parse_size


@pytest.mark.parametrize(
    "text, expected",
    [
        ("0", 0),
        ("4096 B", 4096),
        ("10GB", 10**10),
        ("1.5 KiB", 1536),
        ("3TiB", 3 << 40),
    ],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text, expected", [("90s", 90), ("1.5h", 5400), ("7d", 604800), ("2 w", 1209600), ("3m", 180)])
def test_ages_are_read(text: str, expected: float) -> None:
    assert parse_age(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1e9", "4096", "10", "1 000", "10 PB", "nan", "\u0661GB", "1" * 40])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no size.*GiB"):
        parse_size(text)
    with pytest.raises(ValueError, match=r"is no age.*s, m, h, d or w"):
        parse_age(text)
