"""Which blobs the gears of a stored entry hold, and the entry without some of them.

Needs no torch and runs nothing: `gearcache verify` names and removes gears on a host that only keeps a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gearcache.cache.manifest import Manifest


class HeldGear(Struct, frozen=True):
    """One gear of a stored entry, and the digests of its blobs."""

    text: str
    blobs: frozenset[str]


def held_gears(manifest: Manifest) -> list[HeldGear]:
    """Return the gears of an entry; none where its payload has another form than ours."""
    try:
        return [
            HeldGear(str(gear["text"]), _blobs(gear)) for row in _rows(manifest.payload) for gear in list(row["gears"])
        ]
    except (KeyError, TypeError, AttributeError):
        return []


def without_blobs(manifest: Manifest, lost: frozenset[str]) -> Manifest | None:
    """Return the entry without the gears that need one of these blobs; None where no gear would be left.

    None as well for a payload of another form than ours, and where a blob is needed that is no gear's: such an entry
    is whole or it is nothing. A load of the rest finds nothing new in it: a variant serves by each of its gears alone.
    """
    try:
        rows = [
            {**row, "gears": kept}
            for row in _rows(manifest.payload)
            if (kept := [gear for gear in row["gears"] if not _blobs(gear) & lost])
        ]
        gears = [gear for row in rows for gear in row["gears"]]
        needed = frozenset[str]().union(*map(_blobs, gears))
        of_gears = frozenset[str]().union(*(gear.blobs for gear in held_gears(manifest)))
        if not gears or not needed <= manifest.blobs.keys() or not manifest.blobs.keys() <= of_gears:
            return None
        producer = {
            **manifest.producer,
            "variants": len(rows),
            "gears": [str(gear["text"]) for gear in gears],
            "compile_seconds": round(float(sum(gear.get("seconds", 0.0) for gear in gears)), 3),
        }
        return replace(
            manifest,
            payload={**manifest.payload, "variants": rows},
            blobs={digest: size for digest, size in manifest.blobs.items() if digest in needed},
            producer=producer,
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _rows(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(payload["variants"])


def _blobs(gear: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(gear["blobs"].values())
