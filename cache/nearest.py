"""The stored entry that is nearest to a key, to say why a lookup missed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gearcache.cache.key import CacheKey, Difference, first_difference
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, decode_manifest
from gearcache.cache.trust import read_trusted
from gearcache.errors import CacheError

MAX_CANDIDATES = 64


@dataclass(frozen=True)
class Nearest:
    """An entry of the same label, how many components differ, and the first leaf that does."""

    path: Path
    manifest: Manifest
    differing: int
    difference: Difference | None

    def __str__(self) -> str:
        if self.difference is None:
            return f"the nearest entry `{self.path.parent}` has the same components in another rank scope"
        more = f" ({self.differing} components differ)" if self.differing > 1 else ""
        return f"{self.difference} in the nearest entry `{self.manifest.name}`{more}"


def nearest_entry(layout: Layout, key: CacheKey) -> Nearest | None:
    """The entry with the fewest differing components, of those of the same label the newest.

    Looks at the newest 64 manifests; faulty ones are passed over, as this only explains. Its cost grows with
    the number of stored entries.
    """
    wanted = key.lowered()
    best: tuple[int, Path, Manifest] | None = None
    for path in _newest_first(layout, key):
        try:
            manifest = decode_manifest(read_trusted(path, MAX_MANIFEST_SIZE), path)
        except (CacheError, OSError):
            continue
        stored = manifest.components
        # Plain equality is enough to rank (it only confuses 1 with True); the difference is found exactly.
        differing = sum(1 for name in {*wanted, *stored} if name not in wanted or name not in stored)
        differing += sum(1 for name in wanted if name in stored and wanted[name] != stored[name])
        if best is None or differing < best[0]:
            best = differing, path, manifest
    if best is None:
        return None
    differing, path, manifest = best
    return Nearest(path, manifest, differing, first_difference(wanted, manifest.components))


def _newest_first(layout: Layout, key: CacheKey) -> list[Path]:
    dated = []
    for path in layout.entries(key.safe_label):
        try:
            dated.append((os.lstat(path).st_mtime_ns, path))
        except OSError:
            continue
    return [path for _, path in sorted(dated, reverse=True)[:MAX_CANDIDATES]]
