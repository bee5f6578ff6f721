"""Checks of what a cache holds and how hosts share it, for `gearcache doctor`: traces, ranks, keys, tiers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from gearcache.cache.admin.health import HealthCheck
from gearcache.cache.admin.scan import scan
from gearcache.cache.layout import REMOTES_VARIABLE, Layout
from gearcache.cache.remote.names import PROBES
from gearcache.cache.remote.tier import Tier, open_tiers
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.urls import parse_urls
from gearcache.cache.signatures.key_pair import MISSING_PACKAGE, SIGNING_KEY_VARIABLE, fingerprint
from gearcache.cache.signatures.trusted_keys import TRUSTED_KEYS_VARIABLE
from gearcache.errors import CacheError, OptionError, RemoteError, UnsafePath
from gearcache.options import CompilerConfig

_AGREE = (
    "call gearcache.agree(model) on all ranks, after init_process_group and before the first collective; a rank that "
    "compiles while the others hit lets them wait"
)
_LET_VARY = (
    "gearcache show lists them; let sizes, ints and floats vary (no dynamic=False), pass those that stay constants as "
    "tensors, name sizes in gears=, or raise CompilerConfig(max_variants=)"
)
_TIER_REMEDY = (
    f"look at `gearcache doctor --tiers`, or take it out of `{REMOTES_VARIABLE}`; models are served without it"
)


def check_ranks(environ: Mapping[str, str], layout: Layout) -> list[HealthCheck]:
    """Say what to do in a job of several ranks, if this is one or if such jobs have stored entries here."""
    world = environ.get("WORLD_SIZE", "")
    if world.isdigit() and int(world) > 1:
        return [HealthCheck("ranks", None, f"this is a job of {world} ranks", _AGREE)]
    labels = {
        label
        for label, digest in layout.names()
        if any(layout.identify(path)[2].startswith("world") for path in layout.manifests_of(label, digest))
    }
    text = f"jobs of several ranks have stored entries: {_first(labels)}"
    return [HealthCheck("ranks", None, text, _AGREE)] if labels else []


def check_variants(layout: Layout) -> list[HealthCheck]:
    """Name the methods whose entries hold as many traces as an entry may hold by default."""
    limit = CompilerConfig().max_variants
    try:
        full = {entry.label for entry in scan(layout).entries if entry.variants >= limit}
    except (CacheError, OSError):  # reported by the checks of the folder
        return []
    text = f"{limit} traces or more, calls that need another one run without: {_first(full)}"
    return [HealthCheck("traces", None, text, _LET_VARY)] if full else []


def _first(labels: Iterable[str]) -> str:
    names = sorted(labels)
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def check_keys(environ: Mapping[str, str]) -> HealthCheck:
    """Read the trusted keys and the private key of this host. Never raises."""
    try:
        trust = Trust.from_environment(environ)
        if not trust.keys and trust.signing_key is None:
            detail = f"none (`{TRUSTED_KEYS_VARIABLE}` and `{SIGNING_KEY_VARIABLE}` are not set)"
            return HealthCheck("keys", None, detail)
        if find_spec("cryptography") is None:
            return HealthCheck("keys", False, MISSING_PACKAGE, "install it, or unset the variables of keys")
        own = trust.signing_key.public_key if trust.signing_key is not None else None
    except UnsafePath as error:
        return HealthCheck("keys", False, f"`{error.path}`: {error.reason}", error.remedy)
    except (OptionError, CacheError) as error:
        return HealthCheck("keys", False, str(error), "see the message")
    names = ", ".join(f"`{key.name}`{f' {key.time_text}' if key.has_time else ''}" for key in trust.keys)
    detail = f"trusts {names or 'none'}"
    if own is None:
        return HealthCheck("keys", True, f"{detail}; signs nothing")
    key = next((key for key in trust.keys if key.public_key == own), None)
    detail += f"; signs as `{key.name}`" if key is not None else f"; signs with {fingerprint(own)}, which is not listed"
    if key is not None and not key.covers(time.time()):
        remedy = f"`gearcache keys new` makes another key; add its line to `{TRUSTED_KEYS_VARIABLE}` of all hosts"
        return HealthCheck("keys", False, f"{detail}, {key.time_text} only: what it compiles now is refused", remedy)
    return HealthCheck("keys", True, detail)


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
    return [_check_tier(tier) for tier in open_tiers(urls, layout)]


def _check_tier(tier: Tier) -> HealthCheck:
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
        return HealthCheck("tier", False, f"{tier.label}: {text}{rest_text}", _TIER_REMEDY)
    milliseconds = (time.perf_counter() - begin) * 1000
    access = "read only" if tier.url.read_only else "read and write"
    return HealthCheck("tier", True, f"{tier.label} answers after {milliseconds:.1f} ms, {access}{rest_text}")
