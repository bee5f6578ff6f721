"""The Grafana dashboard of the examples: it asks for metrics that there are, and a real Prometheus answers it."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client import CollectorRegistry, start_http_server

from gearcache import metrics
from gearcache.events import Event, emit
from tests.cache.remote.real_engines import free_port
from tests.support.programs import find_program
from tests.support.source_tree import ROOT
from tests.test_events import Net, cached

DASHBOARD = json.loads((ROOT / "examples" / "grafana.json").read_text())
PANELS = DASHBOARD["panels"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
PROMETHEUS = find_program("prometheus", unpacked="usr/bin/prometheus")
_WORDS = {"method", "reason", "gear", "error", "tier", "le", "folder"}


def samples() -> dict[str, set[str]]:
    """The names of samples that the collector can give -> their labels."""
    registry = CollectorRegistry()
    remove = metrics.register(registry)
    found: dict[str, set[str]] = {}
    try:
        for metric in registry.collect():
            ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}[metric.type]
            for end in ends:
                found[metric.name + end] = {"method", "le"} if end == "_bucket" else {"method"}
    finally:
        remove()
    for name in ("fetches", "fetched_bytes", "uploads", "uploaded_bytes", "tier_faults"):
        found[f"gearcache_{name}_total"].add("tier")
    found["gearcache_cache_bytes"] = {"folder"}
    found["gearcache_misses_total"].add("reason")
    found["gearcache_eager_calls_total"].add("reason")
    found["gearcache_gear_calls_total"].add("gear")
    found["gearcache_refused_calls_total"].add("error")
    return found


def test_every_metric_that_is_asked_for_exists_with_its_labels() -> None:
    known = samples()
    for expression in EXPRESSIONS:
        names = set(re.findall(r"gearcache_\w+", expression))
        assert names
        assert names <= known.keys(), expression
        grouped = {word.strip() for part in re.findall(r"by \(([^)]*)\)", expression) for word in part.split(",")}
        assert grouped <= _WORDS
        for name in names:
            assert grouped <= known[name], expression


def test_every_metric_has_its_place() -> None:
    asked = set(re.findall(r"gearcache_\w+", " ".join(EXPRESSIONS)))
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in samples()} - {"gearcache_info"}
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked} == families


def ask(port: int, expression: str) -> Any:
    """Ask Prometheus and return the result; fails where it does not understand."""
    text = expression.replace("$__rate_interval", "30s").replace("$method", ".*")
    address = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
    with urllib.request.urlopen(address, timeout=10) as answer:
        found = json.loads(answer.read())
    assert found["status"] == "success"
    return found["data"]["result"]


@pytest.mark.slow
@pytest.mark.thorough  # scrapes take ten seconds; the tests above compare names and labels
@pytest.mark.skipif(PROMETHEUS is None, reason="there is no Prometheus: see scripts/servers.sh")
def test_a_real_prometheus_answers_every_panel(cache_dir: Path, tmp_path: Path) -> None:
    registry, port = CollectorRegistry(), free_port()
    remove = metrics.register(registry)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    config = tmp_path / "prometheus.json"  # YAML takes JSON
    job = {"job_name": "g", "scrape_interval": "200ms", "scrape_timeout": "200ms"}
    config.write_text(
        json.dumps({"scrape_configs": [{**job, "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}]}]})
    )
    assert PROMETHEUS is not None
    command = [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    process = subprocess.Popen(
        [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if ask(port, "up == 1"):
                    break
            except OSError:
                assert process.poll() is None
            time.sleep(0.1)
        net = Net()
        cached(net)(torch.randn(2, 4))
        padded = cached(net, on_miss="pad", pad_values={"x": 0.0})
        eager = cached(net, on_miss="eager")
        for _ in range(8):
            for size in (1, 2, 3):
                eager(torch.randn(size, 4))
            padded(torch.randn(1, 4))
            for kind in ("miss", "fetch", "upload", "lease", "fault"):  # a fetch follows a miss
                emit(Event(kind, "Net.decode", tier="redis", seconds=0.1, bytes=5, reason="absent"))
            time.sleep(0.2)
        for panel in PANELS:
            for target in panel["targets"]:
                found = ask(port, target["expr"])
                # Nothing was refused.
                assert found or "refused" in target["expr"], panel["title"]
        (hit_rate,) = ask(port, EXPRESSIONS[0])
        assert 0 < float(hit_rate["value"][1]) < 1
        methods = {row["metric"]["method"] for row in ask(port, "gearcache_load_seconds_count")}
        assert "Net.decode" in methods
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        remove()
        process.terminate()
        process.wait(30)
