"""Housekeeping after a publish. Its failures are ignored."""

from __future__ import annotations

from contextlib import suppress

from gearcache.cache.admin.evict import Limits
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest
from gearcache.errors import CacheError

_PATIENCE_SECONDS = 1.0


def note_entry(layout: Layout, manifest: Manifest, identity: tuple[str, str, str]) -> None:
    """Tell the index of an entry that was just written, by its journal."""
    # Imported here: a relaunch publishes nothing.
    from gearcache.cache.admin.journal import append_entry
    from gearcache.cache.admin.row import stored_entry
    from gearcache.cache.layout import MANIFEST_NAME

    with suppress(OSError, CacheError):
        append_entry(layout.index_folder, stored_entry(manifest, identity, layout.entry(*identity) / MANIFEST_NAME))


def keep_limits(layout: Layout, limits: Limits, identity: tuple[str, str, str]) -> None:
    """Drop what is over the limits, but not this entry; when others write or delete just now, leave it to the next."""
    from gearcache.cache.admin.catalog import Catalog

    with suppress(OSError, CacheError):
        catalog = Catalog(layout, patience=_PATIENCE_SECONDS)
        catalog.prune(max_size=limits.max_size, max_age=limits.max_age, keep=[identity])
