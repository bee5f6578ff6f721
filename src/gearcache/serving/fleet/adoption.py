"""Adopts what another rank of the job has compiled, if this rank would have compiled and stored the same."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gearcache.cache.fingerprint import Ranks
from gearcache.cache.key import CacheKey
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.guards.dispatch.variant_groups import with_groups_here
from gearcache.guards.evidence.reason import Reason
from gearcache.serving.call.call import Call
from gearcache.serving.find.activate import EvidenceCheck
from gearcache.serving.find.binding import Binding
from gearcache.serving.find.entry import Entry
from gearcache.serving.miss.builds import Made

_RANKS = "ranks"


def key_of(key: CacheKey, ranks: Ranks | None) -> CacheKey:
    """Return a key with the ranks of another process; with None, for all ranks."""
    listed = None if ranks is None else [ranks.world_size, ranks.global_rank, ranks.tp_rank, ranks.pp_rank]
    return CacheKey(key.label, tuple((name, listed if name == _RANKS else value) for name, value in key.components))


def adopt(binding: Binding, call: Call, ranks: Ranks, made: Sequence[Made], traced: Sequence[str]) -> bool:
    """Store the result of another rank in this rank's own entry; False if it differs, or is not there.

    `traced` are the digests of what this rank would build: all of them have to be among the digests in `made`. An
    adopted variant was compiled from equal data, and its evidence holds here too.
    """
    from gearcache.building.digests import stored_digest

    found = dict(made)
    if not traced or any(digest not in found for digest in traced):
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
    there = {stored_digest(variant): variant for variant in variants}
    stored = [here for digest in traced if (here := _here(there.get(found[digest]), call)) is not None]
    if len(stored) != len(traced):
        return False
    with entry.exclusive():
        again = {stored_digest(variant, by_role=False) for variant in stored}
        kept = [each for each in entry.read_again() if stored_digest(each, by_role=False) not in again]
        if len(kept) + len(stored) > entry.max_variants or not all(map(entry.is_whole, stored)):
            return False
        entry.adopt(stored, kept)
    binding.builds.take_in()
    return True


def _here(variant: StoredVariant | None, call: Call) -> StoredVariant | None:
    """Return a variant of another rank with this rank's group names; None if it does not hold here.

    Digests count process groups by role, even those of an earlier start, so the names may differ.
    """
    here = with_groups_here(variant, call.scope) if variant is not None else None
    return here if here is not None and EvidenceCheck(call.scope).stale_reason(here) is None else None


def _fetch(binding: Binding, call: Call, other: Entry) -> None:
    """Fetch the entry of another rank from the tiers to this host."""
    from gearcache.serving.fleet.remote_entry import RemoteEntry

    settings = binding.method.settings
    remote = RemoteEntry(
        other, binding.history, lambda variants: None, strict=False, lock_timeout=settings.lock_timeout
    )
    with other.exclusive():
        spec = call.spec(binding.method.spec)
        remote.fetch(binding.builds.tiers.wanted(call, spec, [], lambda: False, any_sizes=True))
