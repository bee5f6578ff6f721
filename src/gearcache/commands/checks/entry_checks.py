"""Checks of what entries are stored, for `gearcache doctor`: full ones, and those of jobs of several ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gearcache.cache.admin.health import HealthCheck
from gearcache.cache.admin.scan import scan
from gearcache.cache.layout import Layout
from gearcache.errors import CacheError
from gearcache.options import CompilerConfig

_AGREE = (
    "call gearcache.agree(model) on all ranks, after init_process_group and before the first collective; a rank that "
    "compiles while the others hit lets them wait"
)
_LET_VARY = (
    "gearcache show lists them; let sizes, ints and floats vary (no dynamic=False), pass those that stay constants as "
    "tensors, name sizes in gears=, or raise CompilerConfig(max_variants=)"
)


def check_ranks(environ: Mapping[str, str], layout: Layout) -> list[HealthCheck]:
    """Say what to do in a job of several ranks, if this is one or if such jobs have stored entries here."""
    world = environ.get("WORLD_SIZE", "")
    if world.isdigit() and int(world) > 1:
        return [HealthCheck("ranks", None, f"this is a job of {world} ranks", _AGREE)]
    labels = {
        label
        for label, digest in layout.names()
        if any(layout.identify(path)[2].startswith("world") for path in layout.manifests_of(label, digest))
    }
    text = f"jobs of several ranks have stored entries: {_first(labels)}"
    return [HealthCheck("ranks", None, text, _AGREE)] if labels else []


def check_variants(layout: Layout) -> list[HealthCheck]:
    """Name the methods whose entries hold as many traces as an entry may hold by default."""
    limit = CompilerConfig().max_variants
    try:
        full = {entry.label for entry in scan(layout).entries if entry.variants >= limit}
    except (CacheError, OSError):  # reported by the checks of the folder
        return []
    text = f"{limit} traces or more, calls that need another one run without: {_first(full)}"
    return [HealthCheck("traces", None, text, _LET_VARY)] if full else []


def _first(labels: Iterable[str]) -> str:
    names = sorted(labels)
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
