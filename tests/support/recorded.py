"""Caches and traces for reports: entries with gears, and files as `GEARCACHE_TRACE` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore

#: What a manifest or a trace of somebody else may hold in any text.
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>&amp;\"'`${1}{{ 7*7 }}"


def gear(text: str, seconds: float, digest: str, rows: dict[str, Any]) -> dict[str, Any]:
    """A gear as a manifest stores it."""
    plain = {"text": text, "seconds": seconds, "blobs": {"code": digest}, "sizes": [], "conditions": [], "header": {}}
    return plain | rows


def store_geared(
    root: Path,
    label: str,
    gears: list[str],
    *,
    torch: str = "2.13.0",
    checks: tuple[Any, ...] = (),
    seconds: float = 2.5,
    data: bytes = b"",
    more: tuple[tuple[str, Any], ...] = (),
    sources: list[Any] | None = None,
    tensor: dict[str, Any] | None = None,
) -> CacheKey:
    """Publish an entry with one variant for each of `checks` (at least one), each with all gears; returns its key.

    `data` is the blob of all gears, `more` are further components of the key, `sources` the traced files.
    `tensor` has the dtype of an input `ids`, and its sizes, strides and whatever else gears have.
    """
    key = CacheKey(label, (("method", {"code": "ab"}), ("versions", {"torch": torch}), *more))
    store = DiskStore(Layout(root))
    with store.writing():
        data = data or f"{label} {torch}".encode()
        digest = store.put_blob(data)
        rows = dict(tensor or {})
        inputs = [[[["argument", "ids"], []], rows.pop("dtype"), "cpu", True, True]] if rows else []
        parts: list[Any] = [{"files": sources or []}, [[], []], [], inputs]
        variants = []
        for expected in checks or (None,):
            common = ["equal", [["argument", "mode"], []], 1]
            call_checks = [common] if expected is None else [common, ["equal", [["argument", "flag"], []], expected]]
            parts.append(call_checks)
            variants.append(
                {
                    "inputs": 3,
                    "attributes": 2,
                    "call_checks": len(parts) - 1,
                    "evidence": 1,
                    "sources": 0,
                    "gears": [gear(text, seconds, digest, rows) for text in gears],
                }
            )
        producer = {
            "torch": torch,
            "gears": gears * len(variants),
            "variants": len(variants),
            "compile_seconds": seconds * len(gears) * len(variants),
        }
        payload = {"method": label, "parts": parts, "variants": variants}
        store.publish(key, payload, {digest: len(data)}, producer)
    return key


def write_trace(path: Path, *methods: dict[str, Any]) -> Path:
    """Write a trace of a process that has called some methods."""
    nothing = {"gears": {}, "padded": {}, "eager_reasons": {}, "refused_errors": {}, "dims": [], "shapes": []}
    own = {
        "trace": 1,
        "pid": 7,
        "command": "serve.py",
        "began": 1.79e9,
        "seconds": 2.5,
        "methods": [{**nothing, "reasons": [], **method} for method in methods],
    }
    path.write_text(json.dumps({"traceEvents": [], "gearcache": own}))
    return path
