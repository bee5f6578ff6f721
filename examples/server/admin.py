"""Health and metrics of all workers, on a separate port, which also answers while all workers compile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from serve import Supervisor


class Admin:
    """Answers `/live`, `/ready` and `/metrics` from its own threads."""

    def __init__(self, supervisor: Supervisor, address: tuple[str, int], metrics: Path) -> None:
        """Open the port (0: any free one). `OSError` if it is in use."""
        self._supervisor = supervisor
        self._metrics = metrics
        admin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = admin.answer(self.path)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Do not log probes."""

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="admin", daemon=True).start()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        supervisor = self._supervisor
        if path == "/live":
            return 200, "text/plain", b"live\n"
        if path == "/ready":
            reports = [worker.report for worker in supervisor.workers]
            body = json.dumps({"is_ready": supervisor.is_ready, "deploys": supervisor.deploys, "workers": reports})
            return (200 if supervisor.is_ready else 503), "application/json", body.encode()
        if path == "/metrics":
            registry = CollectorRegistry()
            MultiProcessCollector(registry, path=str(self._metrics))
            registry.register(self)
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        return 404, "text/plain", b"no such page\n"

    def collect(self) -> Iterable[Metric]:
        """Return the parent's data about its workers."""
        workers = GaugeMetricFamily("server_workers", "Worker processes", labels=["state"])
        ready = sum(worker.is_ready for worker in self._supervisor.workers)
        workers.add_metric(["ready"], ready)
        workers.add_metric(["not ready"], len(self._supervisor.workers) - ready)
        deploys = CounterMetricFamily("server_deploys", "Deploys", labels=["outcome"])
        for outcome, count in self._supervisor.deploys.items():
            deploys.add_metric([outcome], count)
        return [workers, deploys]

    def close(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
