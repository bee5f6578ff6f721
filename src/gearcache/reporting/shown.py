"""Texts and numbers of manifests and traces, which may hold anything, as JSON holds them."""

from __future__ import annotations

import math
from typing import Any

LONGEST = 400


def shown(value: Any, longest: int = LONGEST) -> str:
    """Return a text of at most `longest` characters that UTF-8 can hold; of anything else, its `repr`."""
    text = value if type(value) is str else repr(value)
    if len(text) > longest:
        text = f"{text[:longest]}…"
    return text.encode("utf-8", "replace").decode("utf-8")


def number(value: Any, default: float = 0.0) -> float:
    """Return a finite number of at least 0, or the default for anything else."""
    is_number = type(value) in (int, float)
    return value if is_number and 0 <= value <= 1e15 else default


def whole(value: Any) -> int:
    """Return a whole number of at least 0; 0 for anything else."""
    return value if type(value) is int and 0 <= value <= 1 << 53 else 0


def counted(value: Any, most: int = 1000) -> dict[str, int]:
    """Return a mapping of texts to whole numbers; what is none of that is left out, what is too much is `others`."""
    if not isinstance(value, dict):
        return {}
    rows = list(value.items())
    found = {shown(name): whole(n) for name, n in rows[:most]}
    return {**found, "others": sum(whole(n) for _, n in rows[most:])} if rows[most:] else found


def finite(value: Any) -> Any:
    """Return JSON data in which numbers that JSON lacks are texts, as `--json` prints them."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
