"""Validate lists of sizes, wherever a list of gears is given."""

from __future__ import annotations

from typing import Any

from gearcache.errors import GearSpecError
from gearcache.guards.evidence.names import a_type

#: torchair's limit on the gears of one method (`_gear_utils.py`, torch_npu 2.13.0).
MAX_GEARS = 100


def check_size_list(owner: str, sizes: Any, *, minimum: int = 1) -> tuple[int, ...]:
    """Return a list of sizes as a tuple; `GearSpecError` names their owner, the value and what is allowed."""
    if not isinstance(sizes, (list, tuple)):
        raise GearSpecError(f"gears of {owner}: the sizes are {a_type(sizes)}; they must be a list or tuple of int")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int):
            raise GearSpecError(f"gears of {owner}: {size!r} is {a_type(size)}, not an int")
        if size < 1:
            raise GearSpecError(f"gears of {owner}: {size} is not a size; a gear is at least 1")
    if not minimum <= len(sizes) <= MAX_GEARS:
        raise GearSpecError(f"gears of {owner}: {len(sizes)} sizes were given; allowed: {minimum} to {MAX_GEARS}")
    return tuple(sizes)
