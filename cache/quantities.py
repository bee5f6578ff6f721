"""Parse and format sizes and ages as people write them."""

from __future__ import annotations

import math
import re

_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_AGES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_QUANTITY = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes of `10GB`, `512 MiB` or `0`; `ValueError` for anything else.

    A bare number is refused, as other caches read it as GiB.
    """
    number, unit = _split(text)
    factor = 0 if number == 0 and not unit else _SIZES.get(unit.upper())
    if number is None or factor is None:
        raise ValueError(f"`{text}` is no size; write a number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")
    return math.floor(number * factor)


def parse_age(text: str) -> float:
    """Seconds of `90s`, `30m`, `12h`, `7d` or `2w`; `ValueError` for anything else."""
    number, unit = _split(text)
    factor = _AGES.get(unit)
    if number is None or factor is None:
        raise ValueError(f"`{text}` is no age; write a number and s, m, h, d or w")
    return number * factor


def size_text(size: int) -> str:
    """Bytes as people read them, in powers of 1000 as `parse_size` takes them."""
    if size < 1000:
        return f"{size} B"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            break
    return f"{value:.1f} {unit}"


def _split(text: str) -> tuple[float | None, str]:
    match = _QUANTITY.fullmatch(text)
    return (float(match[1]), match[2]) if match else (None, "")
