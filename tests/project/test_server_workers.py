"""The server of several workers in `examples/server`, as its clients and its operator meet it."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.layout import Layout
from gearcache.telemetry.mirrored_calls import INTERVAL
from tests.support.source_tree import ROOT

httpx = pytest.importorskip("httpx")
for package in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)

#: Rows and bytes: gears, between them, at 1, and larger than all of them.
TEXTS = [
    ["x" * 15],
    ["one", "three", "a text that is longer"],
    ["", "b"],
    ["a long text, " * 4] * 4,
    ["larger than all gears, " * 10],
    [str(number) for number in range(11)],
]
#: Two gears instead of six: less to trace.
GEARS = "BATCHES = (1, 4, 8)", "BATCHES = (4,)"
MEAN = "pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1)"
FIRST = (MEAN, "pooled = states[:, 0]"), ('RELEASE = "mean"', 'RELEASE = "first token"')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the example, whose code a deploy may change."""
    copy = tmp_path / "server"
    shutil.copytree(ROOT / "examples" / "server", copy, ignore=shutil.ignore_patterns("__pycache__"))
    model = copy / "model.py"
    text = model.read_text()
    assert GEARS[0] in text
    model.write_text(text.replace(*GEARS))
    monkeypatch.syspath_prepend(copy)
    yield copy
    for name in ("running", "model", "weights"):
        sys.modules.pop(name, None)


@pytest.fixture
def client() -> Iterator[Any]:
    with httpx.Client() as opened:
        yield opened


def start(folder: Path, *options: str) -> Any:
    from running import Running

    return Running(folder, folder.parent / "cache", "--model", "tiny", "--backend", "eager", *options)


def expected(folder: Path, texts: list[str]) -> dict[str, torch.Tensor]:
    """What eager gives without padding or cache: release -> embeddings."""
    import model
    import weights

    with torch.inference_mode():
        encoder = model.Encoder(*weights.load("tiny"), backend="eager")
        rows = [encoder.inputs([text]) for text in texts]
        states = [encoder.bert(input_ids=ids, attention_mask=mask).last_hidden_state[0] for ids, mask in rows]
        pooled = {"mean": [state.mean(0) for state in states], "first token": [state[0] for state in states]}
    return {name: torch.nn.functional.normalize(torch.stack(found), dim=-1) for name, found in pooled.items()}


def assert_right(answer: dict[str, Any], right: dict[str, torch.Tensor]) -> None:
    """An answer is what the release that it names gives."""
    torch.testing.assert_close(torch.tensor(answer["embeddings"]), right[answer["release"]], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.thorough  # `test_server_example` serves with one worker
def test_cold_restarted_odd_sizes_and_new_code_under_traffic(folder: Path, client: Any) -> None:
    right = [expected(folder, texts) for texts in TEXTS]
    assert all((found["mean"] - found["first token"]).abs().max() > 0.01 for found in right)

    with start(folder, "--cold", "eager") as server:
        status, body = server.health()
        assert (status, body["is_ready"]) == (503, False)
        assert httpx.get(f"{server.admin}/live").status_code == 200
        early = server.embed(client, TEXTS[1])
        assert_right(early, right[1])
        workers = server.wait_ready()[1]
        assert sorted(worker["compiles"] for worker in workers) == [0, 2], "one has compiled for both"
        for texts, found in zip(TEXTS, right, strict=True):
            assert_right(server.embed(client, texts), found)

    with start(folder) as server:
        workers = server.wait_ready()[1]
        assert [(worker["traces"], worker["loads"]) for worker in workers] == [(0, 2)] * 2
        served = []
        for texts, found in zip(TEXTS, right, strict=True):
            answer = server.embed(client, texts)
            assert_right(answer, found)
            served.append(answer["served_with"])
        assert served == ["gears"] * 4 + ["eager"] * 2
        assert client.post(f"{server.url}/embed", json={"texts": []}).status_code == 422

        answers: list[tuple[int, dict[str, Any]]] = []
        faults: list[BaseException] = []
        ends = threading.Event()

        def ask(first: int) -> None:
            try:
                with httpx.Client() as own:
                    for number in range(first, 10**9):
                        if ends.is_set():
                            return
                        time.sleep(0.01)  # leaves the cores to the workers that start
                        answers.append((number % len(TEXTS), server.embed(own, TEXTS[number % len(TEXTS)])))
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        assert server.deploy(("\nimport torch\n", "\nimport no_such_module\nimport torch\n")) == "failed"
        assert server.deploy(("import no_such_module\n", ""), *FIRST) == "done"
        ends.set()
        for thread in threads:
            thread.join()
        assert not faults
        assert {answer["release"] for _, answer in answers} == {"mean", "first token"}
        for number, answer in answers:
            assert_right(answer, right[number])
        assert server.embed(client, TEXTS[0])["release"] == "first token"
        time.sleep(2 * INTERVAL)
        counted = server.metrics()
    requests = 'server_request_seconds_count{release="%s",served_with="gears"}'
    of_gears = sum(counted[requests % release] for release in ("mean", "first token"))
    assert sum(calls for name, calls in counted.items() if name.startswith("gearcache_gear_calls_total")) == of_gears
    assert of_gears >= len([answer for _, answer in answers if answer["served_with"] == "gears"])
    assert counted['server_deploys_total{outcome="failed"}'] == 1
    assert len(list(Catalog(Layout(folder.parent / "cache")).entries())) == 2, "of the old code and of the new"
