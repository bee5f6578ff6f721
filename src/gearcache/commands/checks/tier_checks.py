"""Checks the tiers of the environment, for `gearcache doctor`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from gearcache.cache.admin.health import HealthCheck
from gearcache.cache.layout import REMOTES_VARIABLE, Layout
from gearcache.cache.remote.names import PROBES
from gearcache.cache.remote.tier import Tier, open_tiers
from gearcache.cache.remote.urls import parse_urls
from gearcache.errors import OptionError, RemoteError

_REMEDY = f"look at `gearcache doctor --tiers`, or take it out of `{REMOTES_VARIABLE}`; models are served without it"


def check_tiers(environ: Mapping[str, str], layout: Layout) -> list[HealthCheck]:
    """Ask each tier for an object that does not exist, even a tier that rests after faults: users check just then.

    Never raises.
    """
    try:
        urls = parse_urls(environ.get(REMOTES_VARIABLE, ""), f"${REMOTES_VARIABLE}")
    except OptionError as error:
        return [HealthCheck("tiers", False, str(error), f"set `{REMOTES_VARIABLE}` to URLs such as s3://bucket/team")]
    if not urls:
        return [HealthCheck("tiers", None, f"none beyond this host (`{REMOTES_VARIABLE}` is not set)")]
    return [_check(tier) for tier in open_tiers(urls, layout)]


def _check(tier: Tier) -> HealthCheck:
    seconds = tier.rest_seconds
    rest_text = (
        f"; it failed a moment ago, and nobody of this host was to ask it, or to send there, for {seconds:.0f} s more"
        if seconds
        else ""
    )
    begin = time.perf_counter()
    try:
        tier.ask(lambda remote: remote.get(f"{PROBES}{secrets.token_hex(16)}", 1, tier.begin()))
    except (RemoteError, ValueError) as error:
        text = error.problem if isinstance(error, RemoteError) else str(error)
        return HealthCheck("tier", False, f"{tier.label}: {text}{rest_text}", _REMEDY)
    milliseconds = (time.perf_counter() - begin) * 1000
    access = "read only" if tier.url.read_only else "read and write"
    return HealthCheck("tier", True, f"{tier.label} answers after {milliseconds:.1f} ms, {access}{rest_text}")
