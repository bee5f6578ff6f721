"""Compare and join the variants of entries as rows of plain data, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import msgpack

#: Parts of a variant that the variants of one entry mostly share; together nearly all of its bytes.
SHARED_PARTS = ("frame", "references", "inputs", "attributes", "call_checks", "evidence", "sources")
#: The key, beside the variants of an entry, of calls without a possible graph, see `serving.miss.impossible_call`.
IMPOSSIBLE = "impossible_calls"
#: How many impossible calls an entry keeps.
MOST_IMPOSSIBLE = 64
#: Parts that differ between two builds from one trace: a later build makes only the missing gears, and another module
#: may have other parts that the method does not reach.
_OF_A_BUILD = ("gears", "impossible", "raising", "unreached")
#: Parts that differ between two compiles of one gear.
_OF_A_COMPILE = ("header", "blobs", "seconds")


def rows(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variants of an entry, each whole.

    `ValueError`, `KeyError`, `TypeError` or `IndexError` for data of another form.
    """
    parts = payload["parts"]
    return [row | {name: parts[row[name]] for name in SHARED_PARTS} for row in payload["variants"]]


def shared(whole_rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return variants as msgpack-able data that stores equal parts once."""
    parts: list[Any] = []
    numbers: dict[bytes, int] = {}
    variants = []
    for whole_row in whole_rows:
        row = dict(whole_row)
        for name in SHARED_PARTS:
            data = msgpack.encode(row[name])  # `==` would equate `True` and `1`
            if data not in numbers:
                numbers[data] = len(parts)
                parts.append(row[name])
            row[name] = numbers[data]
        variants.append(row)
    return {"parts": parts, "variants": variants}


def compiled_gears(payload: Mapping[str, Any]) -> dict[bytes, Mapping[str, Any]]:
    """Return the gears of an entry by their identity, which does not depend on the compiling host; errors as `rows`."""
    gears: dict[bytes, Mapping[str, Any]] = {}
    for row in rows(payload):
        gears |= gears_of_row(row)
    return gears


def gears_of_row(row: Mapping[str, Any]) -> dict[bytes, Mapping[str, Any]]:
    """Return the gears of a whole variant by their identity, as `compiled_gears`; errors as `rows`."""
    trace = msgpack.encode({name: value for name, value in row.items() if name not in _OF_A_BUILD})
    gears = {}
    for gear in row["gears"]:
        plain = msgpack.encode({name: value for name, value in gear.items() if name not in _OF_A_COMPILE})
        gears[sha256(trace + plain).digest()] = gear
    return gears


def covers(others: Iterable[Mapping[str, Any]], own: Mapping[str, Any]) -> bool:
    """Return whether the entries of other hosts have all gears of this one; False for data of another form."""
    try:
        identities: set[bytes] = set()
        for payload in others:
            identities |= compiled_gears(payload).keys() | _impossible(payload).keys()
        return compiled_gears(own).keys() | _impossible(own).keys() <= identities
    except (ValueError, KeyError, TypeError, IndexError):
        return False


def union(payloads: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a payload with the variants of all; of a gear that several hosts compiled, the first. Errors as `rows`."""
    chosen_rows: list[dict[str, Any]] = []
    identities: set[bytes] = set()
    first: dict[str, Any] = {}
    impossible: dict[bytes, Any] = {}
    for payload in payloads:
        impossible |= {digest: plain for digest, plain in _impossible(payload).items() if digest not in impossible}
        first = first or {name: value for name, value in payload.items() if name not in ("parts", "variants")}
        for row in rows(payload):
            row_identities = gears_of_row(row).keys()
            if not row_identities <= identities:
                identities |= row_identities
                chosen_rows.append(row)
    return (
        first | shared(chosen_rows) | ({IMPOSSIBLE: list(impossible.values())[:MOST_IMPOSSIBLE]} if impossible else {})
    )


def _impossible(payload: Mapping[str, Any]) -> dict[bytes, Any]:
    """Return the calls for which no graph can be made, by their identity."""
    return {sha256(msgpack.encode([IMPOSSIBLE, plain])).digest(): plain for plain in payload.get(IMPOSSIBLE, [])}


def blobs_of_rows(payload: Mapping[str, Any]) -> set[str]:
    """Return the digests of the blobs that an entry names."""
    return {digest for row in payload["variants"] for gear in row["gears"] for digest in gear["blobs"].values()}
