"""The tiers that a command uses: from its options, or from the environment."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from gearcache.cache.layout import REMOTES_VARIABLE, Layout
from gearcache.cache.remote.tier import Tier, open_tiers
from gearcache.cache.remote.urls import TierURL, parse_urls
from gearcache.errors import OptionError


def tiers_at(layout: Layout, urls: Sequence[str], option: str, *, to_write: bool = False) -> list[Tier]:
    """Return the tiers of an option, else those of the environment; usage errors for no tier and for an invalid one.

    With `to_write`, read-only tiers of the environment are left out, and a given read-only tier is an error.
    """
    source = option if urls else f"${REMOTES_VARIABLE}"
    try:
        tier_urls = parse_urls(list(urls) if urls else os.environ.get(REMOTES_VARIABLE, ""), source)
        for url in tier_urls:
            url.open()  # sends no request: checks that its package is installed
    except (OptionError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if not tier_urls:
        raise click.UsageError(
            f"no tier is named: give {option}, or set ${REMOTES_VARIABLE} to URLs such as s3://bucket/team"
        )
    if to_write:
        tier_urls = _writable(tier_urls, source, is_given=bool(urls))
    return open_tiers(tier_urls, layout)


def split_names(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of entries and the URLs among the arguments of a command."""
    urls = [text for text in arguments if "://" in text or text.startswith("folder:")]
    return [text for text in arguments if text not in urls], urls


def _writable(tier_urls: list[TierURL], source: str, *, is_given: bool) -> list[TierURL]:
    writable = [url for url in tier_urls if not url.read_only]
    if is_given and len(writable) < len(tier_urls):
        read_only = next(url for url in tier_urls if url.read_only)
        raise click.UsageError(f"{source}: the tier {read_only.label} is read only")
    if not writable:
        raise click.UsageError(f"{source} names only tiers that are read only")
    return writable
