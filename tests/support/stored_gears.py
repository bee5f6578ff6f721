"""Entries whose payload has the form of real ones, with gears that nobody can load: for what moves and joins them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest
from gearcache.cache.signatures.signature import Signer
from gearcache.cache.store import DiskStore
from gearcache.guards.dispatch.stored.stored_rows import SHARED_PARTS, rows, shared

SECONDS = 30.0


def store_gears(
    root: Path,
    key: CacheKey,
    gears: Mapping[str, bytes],
    *,
    trace: str = "trace",
    ranks: str = "",
    signer: Signer | None = None,
    created: float | None = None,
) -> Manifest:
    """Publish an entry with one variant, of gears with a blob each; one that is there is replaced."""
    clock = {} if created is None else {"clock": lambda: created}
    disk = DiskStore(Layout(root, ranks), signer=signer, **clock)  # type: ignore[arg-type]
    with disk.writing():
        digests = {text: disk.put_blob(blob) for text, blob in gears.items()}
        row: dict[str, Any] = {
            **dict.fromkeys(SHARED_PARTS, trace),
            "graph_name": "graph",
            "gears": [
                {"text": text, "sizes": [[len(text)]], "header": {}, "blobs": {"so": digest}, "seconds": SECONDS}
                for text, digest in digests.items()
            ],
        }
        payload = {"method": key.label, **shared([row])}
        producer = {"torch": "2.13.0", "variants": 1, "gears": list(gears), "compile_seconds": SECONDS * len(gears)}
        sizes = {digests[text]: len(blob) for text, blob in gears.items()}
        return disk.publish(key, payload, sizes, producer)


def texts(manifest: Manifest) -> list[str]:
    """The gears of an entry, sorted."""
    return sorted(gear["text"] for row in rows(manifest.payload) for gear in row["gears"])


def traces(manifest: Manifest) -> list[str]:
    """What its variants were traced from, sorted."""
    return sorted(row["frame"] for row in rows(manifest.payload))
