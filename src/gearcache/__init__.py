"""gearcache: a persistent compile cache for PyTorch serving.

Names are imported when they are first used, so that the command line and the storage layer need no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from gearcache.version import __version__ as __version__

if TYPE_CHECKING:
    from gearcache import errors as errors
    from gearcache import events as events
    from gearcache import metrics as metrics
    from gearcache.api import cache_compile as cache_compile
    from gearcache.attaching.attach import attach as attach
    from gearcache.cached import Cached as CachedMethod
    from gearcache.errors import BackendUnavailable as BackendUnavailable
    from gearcache.errors import CacheError as CacheError
    from gearcache.errors import CaptureError as CaptureError
    from gearcache.errors import CompileError as CompileError
    from gearcache.errors import GearcacheError as GearcacheError
    from gearcache.errors import GearSpecError as GearSpecError
    from gearcache.errors import InputError as InputError
    from gearcache.errors import UnknownGear as UnknownGear
    from gearcache.events import Event as Event
    from gearcache.events import add_listener as add_listener
    from gearcache.exporting.cpp_package import export as export
    from gearcache.exporting.torchair_export import dynamo_export as dynamo_export
    from gearcache.guards.gears.parse import set_dim_gears as set_dim_gears
    from gearcache.guards.gears.symbol import Symbol as Symbol
    from gearcache.guards.gears.tensor_spec import TensorSpec as TensorSpec
    from gearcache.options import CompilerConfig as CompilerConfig
    from gearcache.prewarming.prewarm import prewarm as prewarm
    from gearcache.ranks.agree import agree as agree
    from gearcache.readable.entry import readable_cache as readable_cache
    from gearcache.telemetry.stats import Stats as Stats

_HOMES = {
    "BackendUnavailable": "gearcache.errors",
    "CacheError": "gearcache.errors",
    "CachedMethod": "gearcache.serving.call.method",
    "CaptureError": "gearcache.errors",
    "CompileError": "gearcache.errors",
    "CompilerConfig": "gearcache.options",
    "Event": "gearcache.events",
    "GearSpecError": "gearcache.errors",
    "GearcacheError": "gearcache.errors",
    "InputError": "gearcache.errors",
    "Stats": "gearcache.telemetry.stats",
    "UnknownGear": "gearcache.errors",
    "Symbol": "gearcache.guards.gears.symbol",
    "TensorSpec": "gearcache.guards.gears.tensor_spec",
    "add_listener": "gearcache.events",
    "agree": "gearcache.ranks.agree",
    "attach": "gearcache.attaching.attach",
    "cache_compile": "gearcache.api",
    "dynamo_export": "gearcache.exporting.torchair_export",
    "export": "gearcache.exporting.cpp_package",
    "prewarm": "gearcache.prewarming.prewarm",
    "readable_cache": "gearcache.readable.entry",
    "set_dim_gears": "gearcache.guards.gears.parse",
}
#: What works with torch itself.
_OF_TORCH = (
    "gearcache.api",
    "gearcache.attaching.attach",
    "gearcache.exporting.cpp_package",
    "gearcache.exporting.torchair_export",
    "gearcache.guards.gears.parse",
    "gearcache.guards.gears.tensor_spec",
    "gearcache.prewarming.prewarm",
    "gearcache.ranks.agree",
    "gearcache.serving.call.method",
)
_MODULES = ("errors", "events", "metrics")
__all__ = [
    "BackendUnavailable",
    "CacheError",
    "CachedMethod",
    "CaptureError",
    "CompileError",
    "CompilerConfig",
    "Event",
    "GearSpecError",
    "GearcacheError",
    "InputError",
    "Stats",
    "Symbol",
    "TensorSpec",
    "UnknownGear",
    "add_listener",
    "agree",
    "attach",
    "cache_compile",
    "dynamo_export",
    "export",
    "prewarm",
    "readable_cache",
    "set_dim_gears",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gearcache.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `gearcache` has no attribute `{name}`")
    from gearcache.collection import uncollected_import

    with uncollected_import():
        value = globals()[name] = _imported(home, name)
    return value


def _imported(home: str, name: str) -> Any:
    if home in _OF_TORCH:
        from gearcache.torch_release import require_torch

        require_torch()
    return getattr(importlib.import_module(home), name)


if os.environ.get("GEARCACHE_TRACE"):
    importlib.import_module("gearcache.telemetry.start_trace").record_start(os.environ["GEARCACHE_TRACE"])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
