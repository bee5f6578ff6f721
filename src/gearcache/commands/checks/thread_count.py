"""Compares the thread count of torch with `OMP_NUM_THREADS`: torch does not always use what it says."""

from __future__ import annotations

from collections.abc import Mapping


def told_of_threads(environ: Mapping[str, str], threads: int) -> str:
    """Return a sentence if torch uses fewer threads (`threads`) than `OMP_NUM_THREADS` says, else an empty text."""
    # A list has one number per level of nesting.
    setting = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if not setting.isdecimal() or int(setting) <= threads:
        return ""
    return (
        f"OMP_NUM_THREADS is {setting}, and torch uses {threads} of them, as this host has no more cores: hosts with "
        f"more cores have another key; `--threads {setting}` is for those that have {setting}"
    )
