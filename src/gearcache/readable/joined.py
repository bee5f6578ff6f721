"""Joins what several hosts have stored under one key into one entry; works without torch, for hosts without it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from gearcache.cache.manifest import Manifest
from gearcache.guards.dispatch.stored.stored_rows import IMPOSSIBLE, blobs_of_rows, covers, rows, shared, union
from gearcache.readable.held_gears import producer_with

#: The most traces of a joined entry, including those of other versions of the code. If a process adds a trace beyond
#: its `max_variants`, it drops those of edited code.
MOST_VARIANTS = 64
_OTHER_FORM = (ValueError, KeyError, TypeError, IndexError, AttributeError)


def joined(own: Manifest | None, others: Sequence[Manifest], is_there: Callable[[str, int], bool]) -> Manifest | None:
    """Return an entry with the gears of this host and of others; None if this host's entry has all of them.

    The traces of this host are first, then one trace of each other host in turn, the newest first, so that no release
    that many hosts have stored displaces another one. Only gears whose blobs exist according to `is_there` (digest and
    bytes) count. An entry whose payload has an unknown form is returned unchanged if there is no other.
    """
    ordered = sorted(others, key=lambda each: each.created, reverse=True)
    own_payload = _whole(own, is_there) if own is not None else None
    if own is not None and own_payload is None:
        return None  # of an unknown form: it is not changed
    usable = [(each, payload) for each in ordered if (payload := _whole(each, is_there)) is not None]
    whole = [each for each in ordered if all(is_there(*item) for item in each.blobs.items())]
    if own is None and whole and (len(ordered) == 1 or not usable):
        return whole[0]
    if not usable or (own_payload is not None and covers([own_payload], union(payload for _, payload in usable))):
        return None
    offered = _in_turn([payload for _, payload in usable])
    payload = union([*([own_payload] if own_payload is not None else []), *offered])
    variants = rows(payload)[: max(MOST_VARIANTS, len(rows(own_payload)) if own_payload is not None else 0)]
    if not variants:
        return next(iter(whole), None) if own is None else None
    is_as_held = (
        own_payload is not None
        and variants == rows(own_payload)
        and payload.get(IMPOSSIBLE) == own_payload.get(IMPOSSIBLE)
    )
    if is_as_held and own_payload is not None and own is not None and own.blobs.keys() == blobs_of_rows(own_payload):
        return None  # there is no room for more
    payload = {name: value for name, value in payload.items() if name not in ("parts", "variants")} | shared(variants)
    return _manifest([*([own] if own is not None else []), *(each for each, _ in usable)], payload, variants)


def _in_turn(payloads: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return payloads of one trace each: the first of each payload, then the second of each, and so on."""
    common_fields = [
        {name: value for name, value in each.items() if name not in ("parts", "variants")} for each in payloads
    ]
    turns = itertools.zip_longest(*(rows(each) for each in payloads))
    return [
        {**common_fields[number], **shared([variant])}
        for turn in turns
        for number, variant in enumerate(turn)
        if variant is not None
    ] or list(payloads)


def covers_manifests(others: Sequence[Manifest], own: Manifest) -> bool:
    """Whether entries of other hosts have all gears of this host's entry; False if there are none."""
    return bool(others) and covers([other.payload for other in others], own.payload)


def _whole(manifest: Manifest, is_there: Callable[[str, int], bool]) -> dict[str, Any] | None:
    """Return the payload with the gears whose blobs exist; None for one of an unknown form."""
    sizes = manifest.blobs

    def has(gear: Any) -> bool:
        return all(digest in sizes and is_there(digest, sizes[digest]) for digest in gear["blobs"].values())

    try:
        variants = [
            {**variant, "gears": [gear for gear in variant["gears"] if has(gear)]} for variant in rows(manifest.payload)
        ]
        common_fields = {name: value for name, value in manifest.payload.items() if name not in ("parts", "variants")}
        payload = {**common_fields, **shared(variant for variant in variants if variant["gears"])}
        union([payload])  # reads all of it
    except _OTHER_FORM:
        return None
    return payload


def _manifest(manifests: Sequence[Manifest], payload: dict[str, Any], variants: Sequence[dict[str, Any]]) -> Manifest:
    sizes = {digest: size for manifest in reversed(manifests) for digest, size in manifest.blobs.items()}
    return replace(
        manifests[0],
        payload=payload,
        blobs={digest: sizes[digest] for digest in sorted(blobs_of_rows(payload))},
        created=max(manifest.created for manifest in manifests),
        producer=producer_with(manifests[0], variants),
    )
