"""Metrics for Prometheus, through `prometheus_client` (`pip install 'gearcache[metrics]'`).

    gearcache.metrics.register()  # into prometheus_client's registry
    prometheus_client.start_http_server(9464)  # unless your server exports that already

| metric | labels | what |
|---|---|---|
| `gearcache_info` | version, torch | 1 |
| `gearcache_cache_bytes` | folder | gauge of the bytes of a cache that this process has used |
| `gearcache_hits_total` | method | lookups that found stored variants |
| `gearcache_misses_total` | method, reason | lookups that found none, see `gearcache.events.MISS_REASONS` |
| `gearcache_compile_seconds` | method | histogram of the compile of a gear; its count is that of compiled gears |
| `gearcache_compile_failures_total` | method | gears that could not be compiled |
| `gearcache_trace_seconds` | method | histogram of Dynamo captures |
| `gearcache_load_seconds` | method | histogram of reading, verifying, checking and loading stored variants |
| `gearcache_loaded_gears_total`, `gearcache_loaded_bytes_total` | method | loaded gears, and their bytes |
| `gearcache_stored_bytes_total` | method | blobs of the entries written |
| `gearcache_faults_total` | method | faults of the cache that were worked around |
| `gearcache_fetches_total` | method, tier | lookups in a tier beyond this host that brought stored gears |
| `gearcache_fetched_bytes_total` | method, tier | bytes of fetched blobs |
| `gearcache_fetch_seconds` | method | histogram of looking up, fetching and verifying what a tier has |
| `gearcache_uploads_total`, `gearcache_uploaded_bytes_total` | method, tier | entries sent to a tier, and their bytes |
| `gearcache_tier_faults_total` | method, tier | faults of a tier, which `gearcache_faults_total` counts too |
| `gearcache_lease_wait_seconds` | method | histogram of waiting for the host that compiles the same |
| `gearcache_gear_calls_total` | method, gear | calls of compiled graphs; `padded`: of those that were padded |
| `gearcache_padded_calls_total` | method | those among them that were padded to a larger gear |
| `gearcache_eager_calls_total` | method, reason | calls that the method itself served, see `EAGER_REASONS` |
| `gearcache_refused_calls_total` | method, error | calls that ended in one of gearcache's errors |

Several worker processes: set `PROMETHEUS_MULTIPROC_DIR`, which prometheus_client reads when it is imported, and call
`register()` in every worker; `prometheus_client.multiprocess.MultiProcessCollector` has the sums of all of them.
Counts of calls are then at most a second old, and the size of a cache is that after the last store of a worker.

`method` is `Class.method`. `CompilerConfig(label="query")` makes it `query.method`, to distinguish models of one class.

Hits, misses of each reason and faults of a method are 0 from its first event on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gearcache.cache.layout import Layout
from gearcache.events import MISS_REASONS, Event, add_listener
from gearcache.telemetry.counters import EAGER_REASONS as EAGER_REASONS
from gearcache.telemetry.counters import eager_calls, refused_calls
from gearcache.telemetry.gear_use import PADDED, gear_calls
from gearcache.telemetry.mirrored_calls import MirroredCalls
from gearcache.version import __version__

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, Metric
    from prometheus_client.registry import CollectorRegistry

_COMPILE_BUCKETS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_TRACE_BUCKETS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120)
_FETCH_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LEASE_BUCKETS = (0.1, 1, 5, 10, 30, 60, 120, 300, 600, 1800)
_LOAD_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise ImportError("gearcache.metrics needs prometheus_client: pip install 'gearcache[metrics]'") from error
    return prometheus_client


def register(registry: CollectorRegistry | None = None) -> Callable[[], None]:
    """Add gearcache's metrics to a registry (the default one); returns a function that removes them again.

    Events are counted from now on, so call it before the first call of a cached method. `ValueError` where the registry
    has them already, `ImportError` without `prometheus_client`.
    """
    client = _client()
    used_registry = client.REGISTRY if registry is None else registry
    collector = _Collector(client, used_registry)
    remove_listener = add_listener(collector)

    def remove() -> None:
        remove_listener()
        collector.unregister()

    return remove


def _bytes_of(folder: str) -> int:
    from gearcache.cache.upkeep import bytes_stored

    return bytes_stored(Layout(Path(folder)))


class _Collector:
    """Counts events into Prometheus metrics; the calls are read when a scrape asks, or mirrored."""

    def __init__(self, client: Any, registry: Any) -> None:
        self._registry = registry
        self._parts: list[Any] = []
        self._methods: set[str] = set()
        self._folders: set[str] = set()
        self._mirror: MirroredCalls | None = None

        def counter(name: str, text: str, *labels: str) -> Any:
            return self._add(client.Counter(f"gearcache_{name}", text, ["method", *labels], registry=registry))

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Any:
            metric = client.Histogram(f"gearcache_{name}", text, ["method"], buckets=buckets, registry=registry)
            return self._add(metric)

        try:
            self._hits = counter("hits", "Lookups that found stored variants")
            self._misses = counter("misses", "Lookups that found no stored variant", "reason")
            self._faults = counter("faults", "Faults of the cache that were worked around")
            self._failures = counter("compile_failures", "Gears that could not be compiled")
            self._loaded_gears = counter("loaded_gears", "Gears made callable")
            self._loaded_bytes = counter("loaded_bytes", "Bytes of the blobs of loaded gears")
            self._stored_bytes = counter("stored_bytes", "Bytes of the blobs of entries written")
            self._compile = histogram("compile_seconds", "Compile of one gear", _COMPILE_BUCKETS)
            self._trace = histogram("trace_seconds", "Dynamo capture of a method", _TRACE_BUCKETS)
            self._fetches = counter("fetches", "Lookups in a tier that brought stored gears", "tier")
            self._fetched_bytes = counter("fetched_bytes", "Bytes of blobs that came from a tier", "tier")
            self._uploads = counter("uploads", "Entries that were sent to a tier", "tier")
            self._uploaded_bytes = counter("uploaded_bytes", "Bytes that were sent to a tier", "tier")
            self._tier_faults = counter("tier_faults", "Faults of a tier that were worked around", "tier")
            self._fetch = histogram("fetch_seconds", "Look up, fetch and verify what a tier has", _FETCH_BUCKETS)
            self._lease = histogram("lease_wait_seconds", "Wait for the host that compiles the same", _LEASE_BUCKETS)
            self._load = histogram("load_seconds", "Read, verify, check and load stored variants", _LOAD_BUCKETS)
            names = ("version", "torch")
            about = client.Gauge("gearcache_info", "What serves", names, registry=registry, multiprocess_mode="liveall")
            self._add(about).labels(__version__, version("torch")).set(1)
            self._size = self._add(
                client.Gauge(
                    "gearcache_cache_bytes",
                    "Bytes of the files of a cache",
                    ["folder"],
                    registry=registry,
                    multiprocess_mode="livemostrecent",
                )
            )
            if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
                # Another process answers the scrape from the files of counters, and asks no collector of this one.
                self._mirror = MirroredCalls(
                    [
                        (name, counter(name.removeprefix("gearcache_"), text, *labels[1:]), read)
                        for (name, text, labels), read in zip(_FAMILIES, _READ, strict=True)
                    ]
                )
            else:
                self._add(_Calls())
                registry.register(self._parts[-1])
        except ValueError:
            self._parts = [part for part in self._parts if not isinstance(part, _Calls)]
            self.unregister()
            raise

    def _add(self, part: Any) -> Any:
        self._parts.append(part)
        return part

    def unregister(self) -> None:
        """Take every metric out of the registry."""
        if self._mirror is not None:
            self._mirror.close()
        for part in self._parts:
            self._registry.unregister(part)
        self._parts = []

    def _begin(self, method: str) -> None:
        """Start the counters of a method at 0: a counter that appears with its first count has no rate, so no alarm."""
        self._methods.add(method)
        for counter in (self._hits, self._faults, self._failures):
            counter.labels(method)
        for reason in MISS_REASONS:
            self._misses.labels(method, reason)

    def _measure(self, folder: str) -> None:
        """Let a scrape have the size of a cache: as it is then, or, where another process answers, as it is now."""
        self._folders.add(folder)
        size = self._size.labels(folder)
        if self._mirror is None:
            size.set_function(partial(_bytes_of, folder))
        else:
            size.set(_bytes_of(folder))

    def __call__(self, event: Event) -> None:
        method = event.method
        if event.folder and (event.folder not in self._folders or event.kind == "publish"):
            self._measure(event.folder)
        if method not in self._methods:
            self._begin(method)
        if event.kind == "hit":
            self._hits.labels(method).inc()
        elif event.kind == "miss":
            self._misses.labels(method, event.reason).inc()
        elif event.kind == "compile":
            self._compile.labels(method).observe(event.seconds)
        elif event.kind == "compile_failed":
            self._failures.labels(method).inc()
        elif event.kind == "trace":
            self._trace.labels(method).observe(event.seconds)
        elif event.kind == "load":
            self._load.labels(method).observe(event.seconds)
            self._loaded_gears.labels(method).inc(len(event.gears))
            self._loaded_bytes.labels(method).inc(event.bytes)
        elif event.kind == "publish":
            self._stored_bytes.labels(method).inc(event.bytes)
        elif event.kind == "fault":
            self._faults.labels(method).inc()
            if event.tier:
                self._tier_faults.labels(method, event.tier).inc()
        else:
            self._note_tier(event)

    def _note_tier(self, event: Event) -> None:
        method, tier = event.method, event.tier
        if event.kind == "fetch":
            self._fetches.labels(method, tier).inc()
            self._fetched_bytes.labels(method, tier).inc(event.bytes)
            self._fetch.labels(method).observe(event.seconds)
        elif event.kind == "upload" and event.bytes:
            self._uploads.labels(method, tier).inc()
            self._uploaded_bytes.labels(method, tier).inc(event.bytes)
        elif event.kind == "lease":
            self._lease.labels(method).observe(event.seconds)


#: Families of calls: name, what it says, labels.
_FAMILIES = (
    ("gearcache_gear_calls", "Calls of compiled graphs", ("method", "gear")),
    ("gearcache_padded_calls", "Calls that were padded to a larger gear", ("method",)),
    ("gearcache_eager_calls", "Calls that the method itself served", ("method", "reason")),
    ("gearcache_refused_calls", "Calls that ended in one of gearcache's errors", ("method", "error")),
)


def _padded() -> Mapping[tuple[str, ...], int]:
    return {(method,): calls for (method, gear), calls in gear_calls().items() if gear == PADDED}


#: What reads each family: label values -> calls of this process.
_READ: tuple[Callable[[], Mapping[Any, int]], ...] = (gear_calls, _padded, eager_calls, refused_calls)


class _Calls:
    """Reads what became of the calls of this process; nothing is counted here, so that no call pays for it."""

    def collect(self) -> Iterable[Metric]:
        """Return the families with the calls of every method."""
        families = self.describe()
        for family, read in zip(families, _READ, strict=True):
            for labels, calls in sorted(read().items()):
                family.add_metric(labels, calls)
        return families

    def describe(self) -> list[CounterMetricFamily]:
        """Name the families without reading anything."""
        from prometheus_client.core import CounterMetricFamily

        return [CounterMetricFamily(name, text, labels=labels) for name, text, labels in _FAMILIES]
