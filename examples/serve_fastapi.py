"""A model behind FastAPI: warm before the first request, and 4xx for a client's mistakes.

    pip install fastapi uvicorn 'gearcache[metrics]'
    uvicorn --app-dir examples serve_fastapi:app --workers 2

    curl -s localhost:8000/classify -H 'content-type: application/json' -d '{"rows": [[1, 2, 3], [4, 5, 6]]}'

If several workers start on an empty cache, one compiles, and the others wait and load the result.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import torch
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from torch import Tensor, nn

import gearcache
import gearcache.metrics

BATCHES = [1, 2, 4, 8]
LENGTH = 16
VOCABULARY = 1000


class Classifier(nn.Module):
    """Scores of ten classes for texts of at most `LENGTH` token ids; calls are padded to the next batch gear."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 64)
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
        config = gearcache.CompilerConfig(on_miss="pad", pad_values={"ids": 0})
        self.cached = gearcache.cache_compile(self.classify, gears={"ids": {0: BATCHES}}, config=config)

    def classify(self, ids: Tensor) -> Tensor:
        """Return scores (batch, 10) of token ids (batch, LENGTH), int64."""
        return self.layers(self.embedding(ids).mean(1)).softmax(-1)


model = Classifier().eval()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load every gear, or compile those that are missing, before the first request is taken."""
    remove_metrics = gearcache.metrics.register()
    with torch.inference_mode():
        model.cached.warm(torch.zeros(max(BATCHES), LENGTH, dtype=torch.long))
    yield
    remove_metrics()


app = FastAPI(lifespan=lifespan)


class Texts(BaseModel):
    """Token ids of a batch of texts. FastAPI checks what the gears do not specify; the batch is left to the gears."""

    rows: list[Annotated[list[Annotated[int, Field(ge=0, lt=VOCABULARY)]], Field(min_length=1, max_length=LENGTH)]]


@app.exception_handler(gearcache.InputError)
async def answer_wrong_input(request: Request, error: gearcache.InputError) -> JSONResponse:
    """422 for a call that no graph may take: too many rows (`UnknownGear`), or a tensor of another form."""
    detail = {"argument": error.argument, "value": error.value, "allowed": error.allowed}
    return JSONResponse({"error": type(error).__name__, "detail": detail}, status_code=422)


@app.exception_handler(gearcache.GearcacheError)
async def answer_refusal(request: Request, error: gearcache.GearcacheError) -> JSONResponse:
    """500 for a fault on our side, such as a graph that could not be compiled."""
    return JSONResponse({"error": type(error).__name__}, status_code=500)


# A plain function: FastAPI runs it in a thread, so the event loop is not blocked. Calls of loaded graphs take no lock.
@app.post("/classify")
def classify(texts: Texts) -> dict[str, list[list[float]]]:
    """Return the scores of each text."""
    rows = [row + [0] * (LENGTH - len(row)) for row in texts.rows]
    ids = torch.tensor(rows, dtype=torch.long).reshape(-1, LENGTH)
    with torch.inference_mode():
        return {"scores": model.cached(ids).tolist()}


@app.get("/stats")
def stats() -> dict[str, object]:
    """Return the cache's counters of this process."""
    return model.cached.stats.to_dict()


@app.get("/metrics")
def metrics() -> Response:
    """Return the metrics for Prometheus."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
