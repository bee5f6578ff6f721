"""Several requests at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

#: Requests that one lookup or upload makes at once.
MOST_AT_ONCE = 8
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def at_once(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Return what `work` returns for each item, in their order; the first error comes out when all have ended."""
    chosen = list(items)
    if len(chosen) <= 1:
        return [work(item) for item in chosen]
    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(chosen)), thread_name_prefix="gearcache-remote") as pool:
        return list(pool.map(work, chosen))
