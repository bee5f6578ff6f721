"""The values with which arguments are padded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from msgspec import Struct

from gearcache.errors import GearSpecError
from gearcache.guards.gears.spec import RangeAxis


class Fills(Struct, frozen=True):
    """What to fill padding with: path pattern -> a value, or `{dim: value}` to pad only these dims.

    `is_vouched`: the caller guarantees that no filling reaches a result.
    """

    values: Mapping[str, Any]
    is_vouched: bool = False

    @property
    def patterns(self) -> list[str]:
        """The paths as the user wrote them."""
        return list(self.values)

    def pattern(self, path: str, dim: int) -> str | None:
        """Return the pattern that covers a dim of an argument, or None."""
        for pattern, value in self.values.items():
            if RangeAxis(pattern, dim, 1).matches(path) and (not isinstance(value, Mapping) or dim in value):
                return pattern
        return None

    def given(self, path: str, dtype: torch.dtype) -> Any:
        """Return the filling of an argument, or None where none is given."""
        return self.value(path, dtype) if self.names(path) else None

    def names(self, path: str) -> bool:
        """Return whether an argument has a filling."""
        return any(RangeAxis(pattern, 0, 1).matches(path) for pattern in self.values)

    def value(self, path: str, dtype: torch.dtype) -> Any:
        """Return the filling of an argument; `GearSpecError` when its dtype cannot hold it."""
        rows = [value for pattern, value in self.values.items() if RangeAxis(pattern, 0, 1).matches(path)]
        fills = [fill for row in rows for fill in (row.values() if isinstance(row, Mapping) else [row])]
        if not fills:
            raise GearSpecError(f"pad_values has no value for `{path}`")
        for fill in fills:
            if not _holds(dtype, fill):
                raise GearSpecError(f"pad_values of `{path}` is {fill!r}, which a tensor of {dtype} cannot hold")
            if fill != fills[0] and not (fill != fill and fills[0] != fills[0]):
                raise GearSpecError(f"pad_values has {fills[0]!r} and {fill!r} for `{path}`; name one value")
        return fills[0]


def _holds(dtype: torch.dtype, fill: Any) -> bool:
    if dtype == torch.bool:
        return fill in (False, True)
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(fill) or abs(fill) <= torch.finfo(dtype).max
    bounds = torch.iinfo(dtype)
    return bool(math.isfinite(fill) and int(fill) == fill and bounds.min <= fill <= bounds.max)
