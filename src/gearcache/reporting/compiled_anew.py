"""Which stored gears a host without them would compile, although it holds an entry of the same key."""

from __future__ import annotations

from typing import Any

from gearcache.cache.manifest import Manifest
from gearcache.readable.entry import understood, variants_of
from gearcache.reporting.shown import number

#: What a lookup and a call compare, beside the sources.
_COMPARED = ("inputs", "attributes", "call_checks", "evidence")


def gears_to_compile(wanted: Manifest, stored: Manifest) -> list[tuple[str, float]]:
    """Return the gears of `wanted`, with their compile time in seconds, that `stored` does not serve.

    A gear is served by an equal one of a variant that asks for the same: where variants ask for other things, no one
    can tell without the program, and a compile is what must be expected. `CacheError` for payloads of another form.
    """
    with understood(stored):
        served = [(_asked(variant), {gear["text"] for gear in variant["gears"]}) for variant in variants_of(stored)]
    with understood(wanted):
        found = []
        for variant in variants_of(wanted):
            asked = _asked(variant)
            present = set[str]().union(*(gears for other, gears in served if other == asked))
            found += [
                (gear["text"], number(gear.get("seconds"))) for gear in variant["gears"] if gear["text"] not in present
            ]
    return found


def _asked(variant: dict[str, Any]) -> dict[str, Any]:
    sources = variant["sources"]
    # A file that was edited elsewhere serves as before: its digest only spares a load the look at the functions.
    codes = sorted((module, list(map(list, codes))) for module, _, codes in sources["files"])
    return {
        **{name: variant[name] for name in _COMPARED},
        "sources": [codes, sources["functions"], sources.get("operators", [])],
    }
