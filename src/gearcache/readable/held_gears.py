"""Finds the blobs that the gears of a stored entry need, and removes gears from the entry.

Needs no torch and runs nothing: `gearcache verify` names and removes gears on a host that only stores a cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gearcache.cache.manifest import Manifest


class HeldGear(Struct, frozen=True):
    """One gear of a stored entry, and the digests of its blobs."""

    text: str
    blobs: frozenset[str]


def held_gears(manifest: Manifest) -> list[HeldGear]:
    """Return the gears of an entry; none if its payload has an unknown form."""
    try:
        return [
            HeldGear(str(gear["text"]), _blobs(gear))
            for variant in _rows(manifest.payload)
            for gear in list(variant["gears"])
        ]
    except (KeyError, TypeError, AttributeError):
        return []


def without_blobs(manifest: Manifest, lost: frozenset[str]) -> Manifest | None:
    """Return the entry without the gears that need one of these blobs; None if no gear would be left.

    Also None for a payload of an unknown form, and if the entry names a blob that belongs to no gear: such an entry
    cannot be reduced. The rest can be loaded as usual, because each gear of a variant works alone.
    """
    try:
        variants = [
            {**variant, "gears": variant_gears}
            for variant in _rows(manifest.payload)
            if (variant_gears := [gear for gear in variant["gears"] if not _blobs(gear) & lost])
        ]
        gears = [gear for variant in variants for gear in variant["gears"]]
        needed_blobs = frozenset[str]().union(*map(_blobs, gears))
        of_gears = frozenset[str]().union(*(gear.blobs for gear in held_gears(manifest)))
        if not gears or not needed_blobs <= manifest.blobs.keys() or not manifest.blobs.keys() <= of_gears:
            return None
        return replace(
            manifest,
            payload={**manifest.payload, "variants": variants},
            blobs={digest: size for digest, size in manifest.blobs.items() if digest in needed_blobs},
            producer=producer_with(manifest, variants),
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def producer_with(manifest: Manifest, variants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a manifest says of its producer, with the gears of some variants in place of its own."""
    gears = [gear for variant in variants for gear in variant["gears"]]
    return {
        **manifest.producer,
        "variants": len(variants),
        "gears": [str(gear["text"]) for gear in gears],
        "compile_seconds": round(float(sum(gear.get("seconds", 0.0) for gear in gears)), 3),
    }


def _rows(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(payload["variants"])


def _blobs(gear: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(gear["blobs"].values())
