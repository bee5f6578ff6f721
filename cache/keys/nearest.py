"""Find the stored entry that is nearest to a key, to explain why a lookup missed."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from gearcache.cache.files.trust import read_trusted
from gearcache.cache.keys.key import CacheKey, Difference, first_difference, short_name
from gearcache.cache.layout import MANIFEST_NAME, Layout
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, Manifest, decode_manifest
from gearcache.errors import CacheError

MAX_SEEN = 64
MAX_CANDIDATES = 8


class Nearest(Struct, frozen=True):
    """An entry of the same label, how many components differ, and the first leaf that differs."""

    path: Path
    manifest: Manifest
    differing: int
    difference: Difference | None

    def __str__(self) -> str:
        if self.difference is None:
            return f"the nearest entry `{self.path.parent}` has the same components, for other ranks"
        more = f" ({self.differing} components differ)" if self.differing > 1 else ""
        return f"{self.difference} in the nearest entry `{short_name(self.manifest.name)}`{more}"


def nearest_entry(layout: Layout, key: CacheKey) -> Nearest | None:
    """Return the entry with the fewest differing components; of several, the newest. Only entries of the same label
    count.

    Of the first `MAX_SEEN` entries in the folder of the label, the newest `MAX_CANDIDATES` are read, so the cost is
    bounded. Faulty entries are skipped, as this only explains.
    """
    components = key.lowered()
    best: tuple[int, Path, Manifest] | None = None
    for path in newest_first(layout, key, MAX_CANDIDATES):
        try:
            manifest = decode_manifest(read_trusted(path, MAX_MANIFEST_SIZE), path)
        except (CacheError, OSError):
            continue
        stored_components = manifest.components
        # Plain equality is enough to rank (it only confuses 1 with True); the difference itself is computed exactly.
        differing = sum(
            1 for name in {*components, *stored_components} if name not in components or name not in stored_components
        )
        differing += sum(
            1 for name in components if name in stored_components and components[name] != stored_components[name]
        )
        if best is None or differing < best[0]:
            best = differing, path, manifest
    if best is None:
        return None
    differing, path, manifest = best
    return Nearest(path, manifest, differing, first_difference(components, manifest.components))


def newest_first(layout: Layout, key: CacheKey, most: int) -> list[Path]:
    """Return the newest manifests among the first `MAX_SEEN` entries of a key's label, at most so many."""
    dated_paths = []
    entries, ranks = str(layout.entries_folder), layout.ranks
    for label, digest in islice(layout.names(key.safe_label), MAX_SEEN):
        # Ranks are part of the key, so an entry mostly belongs to certain ranks, and mostly to ours. Texts are built
        # faster than paths, which is most of the work here.
        own_path = "/".join(filter(None, (entries, label, digest, ranks, MANIFEST_NAME)))
        try:
            dated_paths.append((os.lstat(own_path).st_mtime_ns, own_path))
        except OSError:
            for path in layout.manifests_of(label, digest):
                with suppress(OSError):
                    dated_paths.append((os.lstat(path).st_mtime_ns, str(path)))
    return [Path(path) for _, path in sorted(dated_paths, reverse=True)[:most]]
