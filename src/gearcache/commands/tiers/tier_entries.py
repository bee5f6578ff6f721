"""Finds what tiers have of one entry, and where other entries of its method differ: for `show` and `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgpack
from msgspec import Struct, field
from msgspec.structs import asdict

from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest
from gearcache.cache.remote.engines.protocol import Deadline
from gearcache.cache.remote.holdings import listed, read_manifests
from gearcache.cache.remote.lookup import read_found
from gearcache.cache.remote.names import ENTRIES, EntryName
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.commands.common import count, environment_trust
from gearcache.commands.tiers.chosen import tiers_at
from gearcache.errors import CacheError, RemoteError
from gearcache.readable.differences import differences

#: How many entries of a method are compared; more would take long to fetch.
_MOST_COMPARED = 64


class TierEntries(Struct):
    """What one tier has. `entries` are the entries of the method. If the entry itself is missing, `differences` holds
    those of the nearest entry: path, wanted and stored.
    """

    tier: str
    problem: str = ""
    manifests: int = 0
    gears: list[str] = field(default_factory=list)
    signers: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    entries: int = 0
    differences: list[dict[str, str]] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        """Return everything as JSON data."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Return it as lines of text."""
        if self.problem:
            yield f"{self.tier}: {self.problem}"
            return
        usable = self.manifests - len(self.refused)
        if usable:
            signed = ", signed by " + ", ".join(self.signers) if self.signers else ", which nobody signed"
            yield f"{self.tier}: has {count(len(self.gears), 'gear')} of it in {count(usable, 'manifest')}{signed}"
        yield from (f"{self.tier}: refused: {reason}" for reason in self.refused)
        if not self.manifests:
            others = (
                f"{count(self.entries, 'entry', 'entries')} of the method" if self.entries else "none of the method"
            )
            yield f"{self.tier}: does not have it; it has {others}"
        for each in self.differences[:1]:
            more = f", and {len(self.differences) - 1} more" if len(self.differences) > 1 else ""
            yield (
                f"{self.tier}: the nearest differs in {each['path']}: "
                f"wanted {each['wanted']}, stored {each['stored']}{more}"
            )


def remote_option(function: Any) -> Any:
    """Add `--remote`."""
    text = "Ask the tiers of $GEARCACHE_REMOTES too: which have it, and how theirs differ."
    return click.option("--remote", "is_remote", is_flag=True, help=text)(function)


def in_tiers(layout: Layout, entry: EntryName, components: Mapping[str, Any]) -> list[TierEntries]:
    """Ask each tier of the environment for an entry whose key consists of `components`; a usage error without tiers."""
    trust = environment_trust()
    wanted = msgpack.unpackb(msgpack.packb(dict(components)))  # as in a manifest: lists, not tuples
    return [_look(tier, trust, entry, wanted) for tier in tiers_at(layout, (), "--remote")]


def _look(tier: Tier, trust: Trust, entry: EntryName, components: Mapping[str, Any]) -> TierEntries:
    found = TierEntries(tier.label)
    try:
        held = listed(tier, f"{ENTRIES}{entry.label}/", Deadline.after(tier.url.budget)).manifests
        found.entries = len({(each.digest, each.ranks) for each in held})
        names = held.get(entry, [])
        found.manifests = len(names)
        if names:
            _read(tier, trust, entry, names, found)
        else:
            found.differences = _nearest(tier, trust, held, components)
    except CacheError as error:
        found.problem = error.problem if isinstance(error, RemoteError) else str(error)
    return found


def _read(tier: Tier, trust: Trust, entry: EntryName, names: list[str], found: TierEntries) -> None:
    gears: set[str] = set()
    signers: set[str] = set()
    manifests, faults = read_manifests(tier, names)
    found.refused += map(str, faults.values())
    for name, data in manifests.items():
        try:
            each = read_found(tier, entry, name, data, trust)
        except CacheError as error:
            found.refused.append(str(error))
            continue
        gears |= set(_gears(each.manifest))
        signers |= {each.signer} - {""}
    found.gears, found.signers = sorted(gears), sorted(signers)


def _nearest(
    tier: Tier, trust: Trust, held: Mapping[EntryName, list[str]], components: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Return the differences of the nearest entry of the method; nothing if there is no usable entry."""
    best: list[dict[str, str]] | None = None
    chosen = {names[-1]: each for each, names in sorted(held.items(), key=lambda item: item[0].digest)[:_MOST_COMPARED]}
    for name, data in read_manifests(tier, list(chosen))[0].items():
        try:
            stored = read_found(tier, chosen[name], name, data, trust).manifest.components
        except CacheError:
            continue
        rows = [dict(zip(("path", "wanted", "stored"), row, strict=True)) for row in differences(components, stored)]
        if best is None or len(rows) < len(best):
            best = rows
    return best or []


def _gears(manifest: Manifest) -> list[str]:
    gears = manifest.producer.get("gears", ())
    return [str(text) for text in gears] if isinstance(gears, (list, tuple)) else []
