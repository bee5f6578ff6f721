"""Finds entries that hold as many traces as they may, for `gearcache doctor`."""

from __future__ import annotations

from gearcache.cache.admin.health import HealthCheck
from gearcache.cache.admin.scan import scan
from gearcache.cache.layout import Layout
from gearcache.errors import CacheError
from gearcache.options import CompilerConfig

_REMEDY = (
    "gearcache show lists them; let sizes, ints and floats vary (no dynamic=False), pass those that stay constants as "
    "tensors, name sizes in gears=, or raise CompilerConfig(max_variants=)"
)


def check_variants(layout: Layout) -> list[HealthCheck]:
    """Name the methods whose entries hold as many traces as an entry may hold by default."""
    limit = CompilerConfig().max_variants
    try:
        full = sorted({entry.label for entry in scan(layout).entries if entry.variants >= limit})
    except (CacheError, OSError):  # reported by the checks of the folder
        return []
    if not full:
        return []
    names = ", ".join(full[:3]) + (", …" if len(full) > 3 else "")
    return [
        HealthCheck(
            "traces", None, f"{limit} traces or more, calls that need another one run without: {names}", _REMEDY
        )
    ]
