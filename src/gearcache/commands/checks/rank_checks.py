"""Checks for jobs of several ranks, in `gearcache doctor`."""

from __future__ import annotations

from collections.abc import Mapping

from gearcache.cache.admin.health import HealthCheck
from gearcache.cache.layout import Layout

_VARIABLE = "WORLD_SIZE"
_REMEDY = (
    "call gearcache.agree(model) on all ranks, after init_process_group and before the first collective; a rank that "
    "compiles while the others hit lets them wait"
)


def check_ranks(environ: Mapping[str, str], layout: Layout) -> list[HealthCheck]:
    """Say what to do in a job of several ranks, if this is one or if such jobs have stored entries here."""
    world = environ.get(_VARIABLE, "")
    if world.isdigit() and int(world) > 1:
        return [HealthCheck("ranks", None, f"this is a job of {world} ranks", _REMEDY)]
    labels = set()
    for label, digest in layout.names():
        if any(layout.identify(path)[2].startswith("world") for path in layout.manifests_of(label, digest)):
            labels.add(label)
    if not labels:
        return []
    names = ", ".join(sorted(labels)[:3]) + (", …" if len(labels) > 3 else "")
    return [HealthCheck("ranks", None, f"jobs of several ranks have stored entries: {names}", _REMEDY)]
