"""Compares the thread count of torch with `OMP_NUM_THREADS`: torch does not always use what it says."""

from __future__ import annotations

from collections.abc import Mapping


def told_of_threads(environ: Mapping[str, str], found: int) -> str:
    """Return a sentence if torch uses fewer threads (`found`) than `OMP_NUM_THREADS` says, else an empty text."""
    named = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list has one number per level of nesting
    if not named.isdecimal() or int(named) <= found:
        return ""
    return (
        f"OMP_NUM_THREADS is {named}, and torch uses {found} of them, as this host has no more cores: hosts with more "
        f"cores have another key; `--threads {named}` is for those that have {named}"
    )
