"""Checks arguments that `attach_generate` and `attach_encode` have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gearcache.errors import GearSpecError, OptionError


def check_options(function: str, options: Mapping[str, Any], sizes: str) -> None:
    """Raise `TypeError` for an option that `sizes`, the arguments of the function, stand for."""
    for name in ("gears", "input_signature", "dynamic"):
        if name in options:
            raise TypeError(f"{function} takes no `{name}`: {sizes} say what the graphs take")


def on_miss_of(config: Any, library: str, texts: str) -> str:
    """Return what happens to calls without a graph; `OptionError` unless that is "eager" or "raise"."""
    on_miss = getattr(config, "on_miss", None) or "eager"
    if on_miss not in ("eager", "raise"):
        raise OptionError(
            f"option `on_miss` is {on_miss!r}; for a model of {library} it is 'eager' or 'raise': batches and {texts} "
            "are filled up to the next size anyway"
        )
    return on_miss


def sizes_of(function: str, name: str, numbers: Any, largest: int) -> list[int]:
    """Return sizes in order, each once; `GearSpecError` for anything but a list of ints from 1 to `largest`."""
    sizes = list(numbers) if isinstance(numbers, (list, tuple, range)) else []
    if not sizes or any(
        isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= largest for size in sizes
    ):
        raise GearSpecError(f"{function}: {name} is {numbers!r}; it must be a list of ints from 1 to {largest}")
    return sorted(set(sizes))
