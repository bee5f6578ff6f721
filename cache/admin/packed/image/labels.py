"""The labels of an image: how KServe's tools mount it, and what it contains.

`io.kserve.km/…` is what Red Hat's Model Cache Vault writes for KServe: the folder in the image, and the variable and
folder of the program that uses it. `io.gearcache.cache/…` is ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from gearcache.cache.admin.packed.image.documents import architecture_of
from gearcache.cache.admin.packed.image.layer import ROOT, Layer
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import ROOT_VARIABLE
from gearcache.cache.manifest import Manifest

KSERVE = "io.kserve.km/"
OURS = "io.gearcache.cache/"
#: containerd drops a label that is longer than 4096 bytes together with its name.
_LONGEST = 3900
_SHORT = 12


def labels_of(entries: Iterable[tuple[EntryRow, Manifest]], layer: Layer) -> dict[str, str]:
    """Return the labels of an image; values that are too long for a label are left out."""
    sorted_entries = sorted(entries, key=lambda item: item[0].identity)
    gears = {_short(entry): _texts(manifest.producer.get("gears")) for entry, manifest in sorted_entries}
    labels = {
        f"{KSERVE}cache-type": "gearcache",
        f"{KSERVE}framework": "torch",
        f"{KSERVE}cache-root-env": f"{ROOT_VARIABLE}=/{ROOT}",
        f"{KSERVE}cache-mount-subpath": ROOT,
        f"{KSERVE}cache-hash": layer.diff_id.partition(":")[2],
        f"{OURS}format": str(FORMAT_VERSION),
        f"{OURS}entry-count": str(len(sorted_entries)),
        f"{OURS}cache-size-bytes": str(layer.size),
        f"{OURS}keys": _list(entry.digest for entry, _ in sorted_entries),
        f"{OURS}methods": _list(entry.label for entry, _ in sorted_entries),
        f"{OURS}gears": json.dumps(gears, sort_keys=True, separators=(",", ":")),
        f"{OURS}torch": _list(_inner(manifest, "versions", "torch") for _, manifest in sorted_entries),
        f"{OURS}target": _list(_target(manifest) for _, manifest in sorted_entries),
    }
    return {name: value for name, value in labels.items() if value and len(value.encode()) <= _LONGEST}


def machines_of(manifests: Iterable[Manifest]) -> set[str]:
    """Return the machines, as images call them, for which the code of some entries was made."""
    return {architecture_of(name) for manifest in manifests if (name := _inner(manifest, "versions", "machine"))}


def _target(manifest: Manifest) -> str:
    """Return the kind of machine that the code was compiled for; the key holds the exact instructions."""
    machine = _inner(manifest, "versions", "machine")
    level = _inner(manifest, "backend", "target") or _inner(manifest, "backend", "capability")
    return " ".join(filter(None, (machine, level)))


def _inner(manifest: Manifest, component: str, name: str) -> str:
    values = manifest.components.get(component)
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, (list, tuple)) else []


def _list(texts: Iterable[str]) -> str:
    return ",".join(sorted({text.replace(",", " ") for text in texts if text}))


def _short(entry: EntryRow) -> str:
    ranks = entry.identity[2]
    return f"{entry.label}-{entry.digest[:_SHORT]}" + (f"/{ranks}" if ranks else "")
