"""Makes texts and numbers of manifests and traces, which may contain anything, safe for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from gearcache.commands.common import seconds_text
from gearcache.guards.gears.short_names import short_names

LONGEST = 400
#: The longest text of a gear: many arguments make a long text, and two may differ only at the end.
_LONGEST_GEAR = 8000


def shown(value: Any, longest: int = LONGEST) -> str:
    """Return a text of at most `longest` characters that UTF-8 can encode; for anything else, its `repr`."""
    text = value if type(value) is str else repr(value)
    if len(text) > longest:
        text = f"{text[:longest]}…"
    return text.encode("utf-8", "replace").decode("utf-8")


def gear_name(value: Any) -> str:
    """Return the text of a gear; a long text is cut and gets a digest, so that different ones stay different."""
    text = value if type(value) is str else repr(value)
    if len(text) <= _LONGEST_GEAR:
        return shown(text, _LONGEST_GEAR)
    return f"{shown(text, _LONGEST_GEAR)} {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def names_of(gears: Iterable[str]) -> dict[str, str]:
    """Return the short names of the gears that have one, by text."""
    return {text: name for text, name in short_names(gears).items() if name != text}


def duration_text(seconds: float) -> str:
    """Return a duration for the page: in milliseconds if it is less than a second."""
    if 0 < seconds < 1:
        return f"{1000 * seconds:.{2 if seconds < 0.01 else 0}f} ms"
    return seconds_text(seconds)


def number(value: Any) -> float:
    """Return a finite number of at least 0; 0 for anything else."""
    is_number = type(value) in (int, float)
    return value if is_number and 0 <= value <= 1e15 else 0.0


def whole(value: Any) -> int:
    """Return a whole number of at least 0; 0 for anything else."""
    return value if type(value) is int and 0 <= value <= 1 << 53 else 0


def counted(numbers: Mapping[str, int], name_of: Callable[[str], str] = shown) -> dict[str, int]:
    """Return numbers by texts as they are shown; those of texts that are then equal are added up."""
    sums = Counter[str]()
    for name, number_of_name in numbers.items():
        sums[name_of(name)] += number_of_name
    return dict(sums)
