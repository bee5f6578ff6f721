"""All faults, room by room."""

from __future__ import annotations

from benchmarks.faults import of_cache, of_fleet, of_graphs, of_guards, of_serving

FAULTS = [*of_cache.FAULTS, *of_guards.FAULTS, *of_graphs.FAULTS, *of_serving.FAULTS, *of_fleet.FAULTS]


def chosen(words: list[str]) -> list[int]:
    """Return the numbers of the faults whose promise or file contains one of the words; of all faults without any."""
    return [
        number
        for number, fault in enumerate(FAULTS)
        if not words or any(word.lower() in f"{fault.promise} {fault.file}".lower() for word in words)
    ]
