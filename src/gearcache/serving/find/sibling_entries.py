"""Finds entries of methods whose modules differ only where their traces read nothing. A hit does not import this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gearcache.cache.keys.module_parts import unreached_in
from gearcache.cache.keys.siblings import MODULE, sibling_keys
from gearcache.cache.result import Hit
from gearcache.errors import CacheError
from gearcache.guards.dispatch.stored.stored_rows import gears_of_row
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.interrupts import raise_interrupt
from gearcache.serving.find.entry import Entry


class Sibling(Struct, frozen=True):
    """An entry whose module differs from that of a key only in parts that its variants here did not reach."""

    manifest: Path
    variants: list[StoredVariant]


def siblings_of(entry: Entry) -> list[Sibling]:
    """Return the siblings of an entry that have variants for its module; this process then uses them.

    The variants name what they do not reach in this module, so that they can be stored in this entry too. A fault of
    the cache ends the search.
    """
    if not entry.may_have_siblings:
        return []
    siblings: list[Sibling] = []
    known_gears: set[bytes] = set()
    try:
        for key in sibling_keys(entry.layout, entry.key):
            outcome = entry.store.lookup(key, explain=False)
            variants = entry.decode(outcome.manifest) if isinstance(outcome, Hit) else []
            usable = []
            for variant in reaching_the_same(entry, variants if isinstance(variants, list) else [], key.lowered()):
                gears = gears_of_row(variant.to_plain()).keys()
                if not gears <= known_gears:  # of a trace that several modules had, one is enough
                    known_gears |= gears
                    usable.append(variant)
            if usable and isinstance(entry.store.load(key, explain=False), Hit):
                entry.store.count_load(key, served=entry.serves)
                siblings.append(Sibling(entry.layout.manifest(key), usable))
    except (CacheError, OSError) as error:
        raise_interrupt(error)
    return siblings


def reaching_the_same(
    entry: Entry, variants: Sequence[StoredVariant], components: Mapping[str, Any]
) -> Iterator[StoredVariant]:
    """Yield those variants of a sibling that reached nothing in which the module of an entry differs.

    They name what they do not reach in this module. `components` are the lowered ones of the sibling's key.
    """
    module = entry.key.lowered()[MODULE]
    for variant in variants:
        if (unreached := unreached_in(module, components[MODULE], variant.unreached)) is not None:
            yield replace(variant, unreached=unreached)
