"""What is wrong with environment variables, for commands: a serving process only warns of wrong values."""

from __future__ import annotations

from collections.abc import Mapping

from gearcache.cache.layout import REMOTES_VARIABLE
from gearcache.cache.remote.urls import parse_urls
from gearcache.options import wrong_values


def wrong_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each wrong value."""
    wrong = wrong_values(environ)
    try:
        parse_urls(environ.get(REMOTES_VARIABLE, ""), f"environment variable `{REMOTES_VARIABLE}`")
    except ValueError as error:
        wrong.append(str(error))
    return wrong


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
