"""Reports wrong values of environment variables in commands, where a serving process only warns of them."""

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
