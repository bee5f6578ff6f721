"""Adopts what another rank of the job has compiled, if this rank would have compiled and stored the same."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gearcache.cache.keys.fingerprint import Ranks
from gearcache.cache.keys.key import CacheKey
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.dispatch.stored.variant_groups import with_groups_here
from gearcache.guards.evidence.reason import Reason
from gearcache.serving.call.call import Call
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.entry import Entry
from gearcache.serving.find.evidence import EvidenceCheck
from gearcache.serving.miss.builds import Made

_RANKS = "ranks"


def key_of(key: CacheKey, ranks: Ranks | None) -> CacheKey:
    """Return a key with the ranks of another process; with None, for all ranks."""
    rank_values = None if ranks is None else [ranks.world_size, ranks.global_rank, ranks.tp_rank, ranks.pp_rank]
    return CacheKey(
        key.label, tuple((name, rank_values if name == _RANKS else value) for name, value in key.components)
    )


def adopt(binding: Binding, call: Call, ranks: Ranks, artifacts: Sequence[Made], traced: Sequence[str]) -> bool:
    """Store the result of another rank in this rank's own entry; False if it differs, or is not there.

    `traced` are the digests of what this rank would build: all of them have to be among the digests in `artifacts`. An
    adopted variant was compiled from equal data, and its evidence holds here too.
    """
    from gearcache.building.digests import stored_digest

    digests = dict(artifacts)
    if not traced or any(digest not in digests for digest in traced):
        return False
    method, entry = binding.method, binding.entry
    if entry.is_in_memory:
        return False
    layout = replace(entry.layout, ranks=ranks.folder)
    other = Entry(key_of(entry.key, ranks), layout, method.settings, binding.history, serves=False)
    manifest = other.look_up()
    if isinstance(manifest, Reason) and method.settings.remotes:
        _fetch(binding, call, other)
        manifest = other.look_up()
    variants = manifest if isinstance(manifest, Reason) else other.decode(manifest)
    if isinstance(variants, Reason):
        return False
    variants_by_digest = {stored_digest(variant): variant for variant in variants}
    adopted = [
        own_variant
        for digest in traced
        if (own_variant := _with_own_groups(variants_by_digest.get(digests[digest]), call)) is not None
    ]
    if len(adopted) != len(traced):
        return False
    with entry.exclusive():
        adopted_digests = {stored_digest(variant, by_role=False) for variant in adopted}
        others = [
            stored_variant
            for stored_variant in entry.read_again()
            if stored_digest(stored_variant, by_role=False) not in adopted_digests
        ]
        if len(others) + len(adopted) > entry.max_variants or not all(map(entry.is_whole, adopted)):
            return False
        entry.adopt(adopted, others)
    binding.builds.variants.read_again()
    return True


def _with_own_groups(variant: StoredVariant | None, call: Call) -> StoredVariant | None:
    """Return a variant of another rank with this rank's group names; None if it does not hold here.

    Digests count process groups by role, even those of an earlier start, so the names may differ.
    """
    variant_here = with_groups_here(variant, call.scope) if variant is not None else None
    return (
        variant_here
        if variant_here is not None and EvidenceCheck(call.scope).stale_reason(variant_here) is None
        else None
    )


def _fetch(binding: Binding, call: Call, other: Entry) -> None:
    """Fetch the entry of another rank from the tiers to this host."""
    from gearcache.serving.fleet.remote_entry import RemoteEntry

    settings = binding.method.settings
    remote = RemoteEntry(other, binding.history, strict=False, lock_timeout=settings.lock_timeout)
    with other.exclusive():
        spec = call.spec(binding.method.spec)
        wanted = binding.builds.tiers.wanted(call, spec, [], lambda: False, any_sizes=True)
        remote.fetch(replace(wanted, is_served_by=lambda fetched: False))  # it is not for this rank's entry
