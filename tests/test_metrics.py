"""The Prometheus collector: what a scrape answers."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from prometheus_client import CollectorRegistry, start_http_server

import gearcache
from gearcache import metrics
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.layout import Layout
from gearcache.cache.remote.outbox import outbox
from tests.support.fork_server import run_code
from tests.support.scenarios import strict_config
from tests.support.source_tree import ROOT
from tests.test_events import Net, cached


def scrape(port: int) -> dict[str, float]:
    """Samples of `/metrics`: name with labels -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


@pytest.fixture
def port(cache_dir: Path) -> Iterator[int]:
    """Where the metrics of this process can be scraped."""
    registry = CollectorRegistry()
    remove = metrics.register(registry)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()
    remove()


def test_a_scrape_tells_hits_misses_times_bytes_and_gear_use(port: int, cache_dir: Path) -> None:
    assert "gearcache_hits_total" not in "".join(scrape(port))
    net = Net()
    before = scrape(port).get('gearcache_gear_calls_total{gear="x.size(0)=2",method="Net.decode"}', 0)
    cached(net)(torch.randn(2, 4))
    relaunched = cached(net)
    for _ in range(3):
        relaunched(torch.randn(2, 4))
    found = scrape(port)
    stats = relaunched.stats
    assert found['gearcache_hits_total{method="Net.decode"}'] == 1
    assert found['gearcache_misses_total{method="Net.decode",reason="absent"}'] == 1
    assert found['gearcache_misses_total{method="Net.decode",reason="evidence"}'] == 0, "a rate needs a 0"
    assert found['gearcache_faults_total{method="Net.decode"}'] == 0
    size = sum(path.lstat().st_size for path in cache_dir.rglob("*") if path.is_file())
    assert 0 < found[f'gearcache_cache_bytes{{folder="{cache_dir}"}}'] <= size
    assert found[f'gearcache_info{{torch="{version("torch")}",version="{gearcache.__version__}"}}'] == 1
    assert found['gearcache_compile_seconds_count{method="Net.decode"}'] == 2
    assert found['gearcache_trace_seconds_count{method="Net.decode"}'] == 1
    assert found['gearcache_load_seconds_count{method="Net.decode"}'] == 2
    assert found['gearcache_load_seconds_sum{method="Net.decode"}'] >= stats.load_seconds
    assert found['gearcache_loaded_gears_total{method="Net.decode"}'] == 4
    assert found['gearcache_loaded_bytes_total{method="Net.decode"}'] == 2 * stats.bytes_loaded > 0
    assert found['gearcache_stored_bytes_total{method="Net.decode"}'] == stats.bytes_loaded
    assert found['gearcache_gear_calls_total{gear="x.size(0)=2",method="Net.decode"}'] == before + 4


def test_labels_tell_models_of_one_class_apart(port: int, cache_dir: Path) -> None:
    for label in ("query", "passage", None):
        config = strict_config(label=label)
        served = gearcache.cache_compile(Net().decode, config=config, gears={"x": {0: [2]}})
        served(torch.randn(2, 4))
        assert served.explain().startswith(f"{label or 'Net'}.decode: ")
    found = scrape(port)
    for name in ("query", "passage", "Net"):
        assert found[f'gearcache_misses_total{{method="{name}.decode",reason="absent"}}'] == 1
    names = {entry.label for entry in Catalog(Layout(cache_dir)).entries()}
    assert names == {"query.decode", "passage.decode", "Net.decode"}


def test_a_scrape_tells_padded_eager_and_refused_calls(port: int) -> None:
    net = Net()
    before = scrape(port)
    for on_miss in ("pad", "eager", "raise"):
        config = strict_config(on_miss=on_miss, pad_values={"x": 0.0} if on_miss == "pad" else {})
        served = gearcache.cache_compile(net.decode, config=config, gears={"x": {0: [2, 4]}})
        if on_miss == "raise":
            with pytest.raises(gearcache.UnknownGear):
                served(torch.randn(3, 4))
        else:
            served(torch.randn(3, 4))
    found = scrape(port)
    for labels in (
        'padded_calls_total{method="Net.decode"}',
        'eager_calls_total{method="Net.decode",reason="on_miss"}',
        'refused_calls_total{error="UnknownGear",method="Net.decode"}',
    ):
        assert found[f"gearcache_{labels}"] == before.get(f"gearcache_{labels}", 0) + 1


def test_a_scrape_tells_what_tiers_did(port: int, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    share = f"folder:{tmp_path / 'share'}?unsigned=1"
    found = []
    for host in ("a", "b"):
        served = gearcache.cache_compile(
            Net().decode,
            config=gearcache.CompilerConfig(backend="eager"),
            gears={"x": {0: [2, 4]}},
            cache_dir=tmp_path / host,
            remotes=f"{share} http://127.0.0.1:1/x",
        )
        served(torch.randn(2, 4))
        assert outbox().flush(30) == 0
        found.append(served.stats)
    samples = scrape(port)
    first, second = found
    tier = f'{{method="Net.decode",tier="folder:{tmp_path / "share"}"}}'
    assert (first.fetches, first.uploads, second.fetches, second.compiles, second.uploads) == (0, 1, 2, 0, 0)
    assert samples[f"gearcache_fetches_total{tier}"] == 1
    assert samples[f"gearcache_fetched_bytes_total{tier}"] == second.bytes_fetched == first.bytes_stored > 0
    assert samples[f"gearcache_uploads_total{tier}"] == 1
    assert samples[f"gearcache_uploaded_bytes_total{tier}"] == first.bytes_uploaded > first.bytes_stored
    assert samples['gearcache_fetch_seconds_count{method="Net.decode"}'] == 1
    assert samples['gearcache_lease_wait_seconds_count{method="Net.decode"}'] == 1
    assert samples['gearcache_tier_faults_total{method="Net.decode",tier="http://127.0.0.1:1/x"}'] == first.faults > 0
    assert first.to_dict()["lease_seconds"] >= 0


def test_a_stopped_collector_leaves_its_registry_empty(cache_dir: Path) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    remove = metrics.register(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.register(registry)
    assert b"gearcache_hits" in generate_latest(registry)
    remove()
    assert generate_latest(registry) == b""
    metrics.register(registry)()


WORKER = """
import os, sys, torch, gearcache
from gearcache import metrics
from gearcache.cache.remote.outbox import outbox
from tests.test_events import Net, cached

remove = metrics.register()
served = cached(Net(), on_miss="pad", pad_values={"x": 0.0})
for rows in (2, 2, 3):
    served(torch.randn(rows, 4))
if sys.argv[1] == "twice":
    remove()
    metrics.register()
    served(torch.randn(2, 4))
"""


def test_workers_write_their_calls_where_the_scrape_of_another_process_finds_them(
    cache_dir: Path, tmp_path: Path
) -> None:
    """The second worker has removed the metrics and registered them again: each call still counts once."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    folder = tmp_path / "metrics"
    folder.mkdir()
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    for how in ("once", "twice"):
        run_code(WORKER, how, environ=environment, cwd=ROOT, compiles=True).check_returncode()
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))
    lines = generate_latest(registry).decode().splitlines()
    found = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}
    assert found['gearcache_misses_total{method="Net.decode",reason="absent"}'] == 1
    assert found['gearcache_hits_total{method="Net.decode"}'] == 1
    assert any(name.startswith("gearcache_cache_bytes{") and size > 0 for name, size in found.items())
    assert found['gearcache_gear_calls_total{gear="x.size(0)=2",method="Net.decode"}'] == 5
    assert found['gearcache_gear_calls_total{gear="padded",method="Net.decode"}'] == 2
    assert found['gearcache_padded_calls_total{method="Net.decode"}'] == 2


def test_without_prometheus_client_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from gearcache import metrics\n"
        "try: metrics.register()\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=True)
    assert "pip install 'gearcache[metrics]'" in done.stdout
