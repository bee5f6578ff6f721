"""The FastAPI example, as clients meet it: right and wrong requests, many at once."""

from __future__ import annotations

import functools
import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.support.source_tree import ROOT


@pytest.fixture
def server(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's module, with the backend that needs no compiler."""
    for library in ("httpx", "fastapi"):
        pytest.importorskip(library)
    config = functools.partial(gearcache.CompilerConfig, backend="eager")
    monkeypatch.setattr(gearcache, "CompilerConfig", config)
    spec = importlib.util.spec_from_file_location("serve_fastapi", ROOT / "examples" / "serve_fastapi.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "serve_fastapi", module)
    spec.loader.exec_module(module)
    return module


def test_wrong_requests_are_4xx_and_the_others_get_what_eager_gives_also_many_at_once(server: Any) -> None:
    from fastapi.testclient import TestClient

    with TestClient(server.app) as client:
        assert client.get("/stats").json()["loads"] == len(server.BATCHES), "warm before the first request"
        for count in (1, 3, 8):
            rows = torch.randint(1000, (count, server.LENGTH))
            answer = client.post("/classify", json={"rows": rows.tolist()})
            assert answer.status_code == 200
            torch.testing.assert_close(torch.tensor(answer.json()["scores"]), server.model.classify(rows))
        many = client.post("/classify", json={"rows": [[1]] * 9})
        assert (many.status_code, many.json()["error"]) == (422, "UnknownGear")
        assert "outside all gears: ids.size(0)=9" in many.json()["detail"]["value"]
        long = client.post("/classify", json={"rows": [[1] * 17]})
        assert (long.status_code, long.json()["detail"][0]["type"]) == (422, "too_long")
        none = client.post("/classify", json={"rows": []})
        assert (none.status_code, none.json()["error"]) == (422, "UnknownGear")
        counted = client.get("/stats").json()
        assert counted["refused_errors"] == {"UnknownGear": 2}
        assert (counted["calls"], counted["padded_calls"]) == (3, 1)
        assert (
            'gearcache_refused_calls_total{error="UnknownGear",method="Classifier.classify"}'
            in client.get("/metrics").text
        )

        def ask(number: int) -> None:
            rows = torch.full((1 + number % 8, server.LENGTH), number)
            answer = client.post("/classify", json={"rows": rows.tolist()})
            assert answer.status_code == 200, answer.text
            torch.testing.assert_close(torch.tensor(answer.json()["scores"]), server.model.classify(rows))

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(ask, number) for number in range(24)]:
                done.result()
