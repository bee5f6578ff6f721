"""Survey a tier: reachability, speed, conditional writes, and content."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from statistics import median

from msgspec import Struct, field

from gearcache.cache.remote.admin.holdings import SECONDS, Holdings, holdings, read_manifests
from gearcache.cache.remote.engines.protocol import Deadline
from gearcache.cache.remote.lookup import read_tier_entry
from gearcache.cache.remote.names import PROBES, EntryName
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.errors import CacheError, RemoteError, UnsignedEntry

_TRIES = 5
_PROBE = b"gearcache"
#: Manifests that are read to count their signers.
_SAMPLE = 64
_NOBODY = "nobody"


class TierSurvey(Struct):
    """The results; None where unknown. Times are in seconds, `size` in bytes of blobs and manifests."""

    tier: str
    read_only: bool
    unsigned: bool
    #: Seconds for which the processes of this host were not to ask the tier, when the survey began.
    resting: float
    problem: str = ""
    get_seconds: float | None = None
    put_seconds: float | None = None
    #: Whether a lease is given to only one of several hosts.
    leases: bool | None = None
    entries: int | None = None
    manifests: int | None = None
    size: int | None = None
    #: Signer -> number of manifests, of those that were read; and refused ones by reason.
    signers: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    read: int = 0

    @property
    def is_reachable(self) -> bool:
        """Return whether the tier answered every request."""
        return not self.problem


def survey(tier: Tier, trust: Trust) -> TierSurvey:
    """Try a tier and examine its content; never raises for the tier. Objects written by the probe are removed again."""
    result = TierSurvey(tier.label, tier.url.read_only, tier.url.unsigned, tier.rest_seconds)
    try:
        _try(tier, result)
        contents = holdings(tier, Deadline.after(SECONDS))
        result.entries = len(contents.manifests)
        result.manifests = len(contents.names)
        _read(tier, contents, trust, result)
    except CacheError as error:
        result.problem = error.problem if isinstance(error, RemoteError) else str(error)
    return result


def _try(tier: Tier, result: TierSurvey) -> None:
    name = f"{PROBES}{secrets.token_hex(16)}"
    deadline = tier.begin()
    try:
        if not tier.url.read_only:
            result.put_seconds = _seconds(lambda: tier.write(lambda remote: remote.put(name, _PROBE, deadline)))
        result.get_seconds = _seconds(lambda: tier.ask(lambda remote: remote.get(name, len(_PROBE), deadline)))
        if not tier.url.read_only:
            if tier.ask(lambda remote: remote.get(name, len(_PROBE), deadline)) != _PROBE:
                raise RemoteError(tier.label, "it does not give back what was stored")
            result.leases = tier.has_leases()
    finally:
        if not tier.url.read_only and result.put_seconds is not None:
            with suppress(RemoteError):
                tier.write(lambda remote: remote.delete(name, Deadline.after(tier.url.budget)))


def _seconds(work: Callable[[], object]) -> float:
    """Return how long some work takes: the median of several runs."""
    times = []
    for _ in range(_TRIES):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return median(times)


def _read(tier: Tier, contents: Holdings, trust: Trust, result: TierSurvey) -> None:
    """Read some manifests and count their signers; if they are all, also sum the size of what they need."""
    entry_by_name: dict[str, EntryName] = {name: entry for entry, names in contents.manifests.items() for name in names}
    names = contents.names
    sample = names if len(names) <= _SAMPLE else [names[len(names) * at // _SAMPLE] for at in range(_SAMPLE)]
    signers, refused = Counter[str](), Counter[str]()
    sizes: dict[str, int] = {}
    manifests, faults = read_manifests(tier, sample)
    if faults:
        refused["it cannot be read"] = len(faults)
    for name, data in manifests.items():
        result.read += 1
        try:
            candidate = read_tier_entry(tier, entry_by_name[name], name, data, trust)
        except UnsignedEntry as error:
            refused[error.reason] += 1
        except CacheError:
            refused["damaged, or of another kind"] += 1
        else:
            signers[candidate.signer or _NOBODY] += 1
            sizes |= {name: len(data), **candidate.manifest.blobs}
    result.signers, result.refused = dict(signers), dict(refused)
    if len(sample) == len(names) and not refused:
        result.size = sum(sizes.values())
