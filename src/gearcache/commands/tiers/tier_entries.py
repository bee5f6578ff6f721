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
from gearcache.cache.remote.admin.holdings import listed, read_manifests
from gearcache.cache.remote.engines.protocol import Deadline
from gearcache.cache.remote.lookup import read_tier_entry
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
        for difference in self.differences[:1]:
            others_text = f", and {len(self.differences) - 1} more" if len(self.differences) > 1 else ""
            yield (
                f"{self.tier}: the nearest differs in {difference['path']}: "
                f"wanted {difference['wanted']}, stored {difference['stored']}{others_text}"
            )


def remote_option(function: Any) -> Any:
    """Add `--remote`."""
    text = "Ask the tiers of $GEARCACHE_REMOTES too: which have it, and how theirs differ."
    return click.option("--remote", "is_remote", is_flag=True, help=text)(function)


def in_tiers(layout: Layout, entry: EntryName, components: Mapping[str, Any]) -> list[TierEntries]:
    """Ask each tier of the environment for an entry whose key consists of `components`; a usage error without tiers."""
    trust = environment_trust()
    plain_components = msgpack.unpackb(msgpack.packb(dict(components)))  # as in a manifest: lists, not tuples
    return [_ask_tier(tier, trust, entry, plain_components) for tier in tiers_at(layout, (), "--remote")]


def _ask_tier(tier: Tier, trust: Trust, entry: EntryName, components: Mapping[str, Any]) -> TierEntries:
    tier_entries = TierEntries(tier.label)
    try:
        manifest_names = listed(tier, f"{ENTRIES}{entry.label}/", Deadline.after(tier.url.budget)).manifests
        tier_entries.entries = len({(each.digest, each.ranks) for each in manifest_names})
        names = manifest_names.get(entry, [])
        tier_entries.manifests = len(names)
        if names:
            _read(tier, trust, entry, names, tier_entries)
        else:
            tier_entries.differences = _nearest(tier, trust, manifest_names, components)
    except CacheError as error:
        tier_entries.problem = error.problem if isinstance(error, RemoteError) else str(error)
    return tier_entries


def _read(tier: Tier, trust: Trust, entry: EntryName, names: list[str], tier_entries: TierEntries) -> None:
    gears: set[str] = set()
    signers: set[str] = set()
    manifests, faults = read_manifests(tier, names)
    tier_entries.refused += map(str, faults.values())
    for name, data in manifests.items():
        try:
            result = read_tier_entry(tier, entry, name, data, trust)
        except CacheError as error:
            tier_entries.refused.append(str(error))
            continue
        gears |= set(_gears(result.manifest))
        signers |= {result.signer} - {""}
    tier_entries.gears, tier_entries.signers = sorted(gears), sorted(signers)


def _nearest(
    tier: Tier, trust: Trust, manifest_names: Mapping[EntryName, list[str]], components: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Return the differences of the nearest entry of the method; nothing if there is no usable entry."""
    best: list[dict[str, str]] | None = None
    entries = {
        names[-1]: entry
        for entry, names in sorted(manifest_names.items(), key=lambda item: item[0].digest)[:_MOST_COMPARED]
    }
    for name, data in read_manifests(tier, list(entries))[0].items():
        try:
            stored = read_tier_entry(tier, entries[name], name, data, trust).manifest.components
        except CacheError:
            continue
        rows = [
            dict(zip(("path", "wanted", "stored"), difference, strict=True))
            for difference in differences(components, stored)
        ]
        if best is None or len(rows) < len(best):
            best = rows
    return best or []


def _gears(manifest: Manifest) -> list[str]:
    gears = manifest.producer.get("gears", ())
    return [str(text) for text in gears] if isinstance(gears, (list, tuple)) else []
