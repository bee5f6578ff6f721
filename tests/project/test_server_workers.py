"""The server of several workers in `examples/server`, as its clients and its operator meet it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.layout import Layout
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


def deploy(server: Any) -> list[str]:
    """Deploy code that cannot be imported, then a new release; what became of each."""
    wrong = server.deploy(("\nimport torch\n", "\nimport no_such_module\nimport torch\n"))
    return [wrong, server.deploy(("import no_such_module\n", ""), *FIRST)]


@pytest.mark.slow
@pytest.mark.thorough  # `test_server_example` serves with one worker
def test_cold_restarted_odd_sizes_and_new_code(folder: Path, client: Any) -> None:
    right = [expected(folder, texts) for texts in TEXTS]

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

        with ThreadPoolExecutor(1) as pool:
            deployed = pool.submit(deploy, server)
            answers = []
            while not deployed.done():
                time.sleep(0.01)  # leaves the cores to the workers that start
                answers.append(server.embed(client, TEXTS[1]))
        assert deployed.result() == ["failed", "done"]
        answers.append(server.embed(client, TEXTS[1]))
        for answer in answers:
            assert_right(answer, right[1])
        assert (answers[0]["release"], answers[-1]["release"]) == ("mean", "first token")
    assert len(list(Catalog(Layout(folder.parent / "cache")).entries())) == 2, "of the old code and of the new"
