"""The application of a worker. `serve.py` runs several; `uvicorn --app-dir examples/server app:app` runs one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio.to_thread
import model
from fastapi import FastAPI, Response
from prometheus_client import Histogram
from pydantic import BaseModel, Field
from service import Service, Settings

import gearcache.metrics

service = Service(Settings.of(os.environ))
seconds = Histogram("server_request_seconds", "Time of a request in the worker", ["release", "served_with"])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Warm up: with `SERVER_COLD=wait` before the first connection is accepted, else while requests are served."""
    remove_metrics = gearcache.metrics.register()
    # A daemon thread, so that a worker that stops does not wait for a compile.
    threading.Thread(target=service.warm, name="warm", daemon=True).start()
    if service.settings.cold == "wait":
        await anyio.to_thread.run_sync(service.is_decided.wait)
        if service.state != "ready":
            raise RuntimeError(service.state)
    yield
    remove_metrics()


app = FastAPI(lifespan=lifespan)


class Texts(BaseModel):
    """The body of a request."""

    texts: Annotated[list[Annotated[str, Field(max_length=10_000)]], Field(min_length=1, max_length=64)]


# A plain function: FastAPI runs it in a thread of its pool, so the event loop is not blocked. Gears take no lock.
@app.post("/embed")
def embed(body: Texts) -> dict[str, Any]:
    """Return an embedding for each text, and what computed it."""
    begin = time.perf_counter()
    embeddings, served_with = service.encode(body.texts)
    seconds.labels(model.RELEASE, served_with).observe(time.perf_counter() - begin)
    return {
        "embeddings": embeddings,
        "release": model.RELEASE,
        "served_with": served_with,
        "worker": os.getpid(),
    }


@app.get("/live")
async def live() -> str:
    """Answer while the event loop runs, also during a compile."""
    return "live"


@app.get("/ready")
async def ready(response: Response) -> dict[str, Any]:
    """200 once this worker is warm, 503 before. `serve.py` answers for all workers, on its own port."""
    response.status_code = 200 if service.state == "ready" else 503
    return service.report()


@app.get("/metrics")
def metrics() -> Response:
    """Return the metrics for Prometheus: of all workers if they share a folder, else of this one."""
    from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
