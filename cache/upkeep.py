"""Housekeeping after a publish. Its failures are ignored."""

from __future__ import annotations

import logging
import math
import os
import time
from contextlib import suppress
from pathlib import Path

from gearcache.cache.layout import Layout
from gearcache.cache.limits import DEFAULT_MAX_SIZE, Limits
from gearcache.cache.quantities import size_text
from gearcache.errors import CacheError

logger = logging.getLogger("gearcache")
_PATIENCE_SECONDS = 1.0
#: Interval at which a process checks the default limit; a limit set by the user is checked at each publish.
_DEFAULT_SECONDS = 60.0
_check_times: dict[Path, float] = {}
_warned_roots: set[Path] = set()


def keep_limits(layout: Layout, limits: Limits, identity: tuple[str, str, str]) -> None:
    """Remove entries over the limits, but not this one; while others write or delete, leave it to the next publish."""
    by_default = limits == Limits(DEFAULT_MAX_SIZE)
    now = time.monotonic()
    if by_default and now - _check_times.get(layout.root, -math.inf) < _DEFAULT_SECONDS:
        return
    with suppress(OSError, CacheError):
        if by_default:
            _check_times[layout.root] = now
        is_full = limits.max_size is not None and bytes_stored(layout) > limits.max_size
        if by_default and not is_full:
            return
        from gearcache.cache.admin.catalog import Catalog

        catalog = Catalog(layout, patience=_PATIENCE_SECONDS)
        if is_full:  # maybe of what killed writers have left, which belongs to no entry
            catalog.collect()
        outcome = catalog.prune(max_size=limits.max_size, max_age=limits.max_age, keep=[identity])
        if outcome.blocked is not None and is_full and layout.root not in _warned_roots:
            _warned_roots.add(layout.root)
            logger.warning("`%s` is over its limit, and no entry is removed: %s", layout.root, outcome.blocked)
        if (removed_count := len(outcome.removed)) and by_default:
            logger.warning(
                "`%s` was over its limit of %s: the %d entries that nobody used for longest are removed; "
                "`GEARCACHE_MAX_SIZE` sets another limit, or `none`",
                layout.root,
                size_text(DEFAULT_MAX_SIZE),
                removed_count,
            )


def bytes_stored(layout: Layout) -> int:
    """Return the bytes of the files of a cache, without reading them."""
    total = 0
    for folder, _, names in os.walk(layout.bucket):
        for name in names:
            with suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total
