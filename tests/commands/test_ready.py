"""`gearcache doctor --ready`: 0 when all that a function calls would be a hit, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gearcache
from tests.scenarios import collectives, prewarmed
from tests.support.commands import run, run_json

TARGET = "tests.scenarios.prewarmed:on_meta"


def checks(*arguments: str, code: int) -> dict[str, Any]:
    """What `doctor --ready` says, by name of the method: whether it is ready, and the text."""
    found = run_json("doctor", "--ready", *arguments, code=code)["checks"]
    return {each["name"]: (each["ok"], each["detail"]) for each in found}


def test_ready_is_what_a_load_would_hit(cache_dir: Path) -> None:
    empty = checks(TARGET, code=1)
    assert not cache_dir.exists(), "who asks makes nothing"
    assert empty["Decoder.decode"][0] is False
    assert (
        "0 gears here, missing: ids.size(0)=1; ids.size(0)=2; ids.size(0)=4; because: absent"
        in empty["Decoder.decode"][1]
    )
    gearcache.prewarm(prewarmed.warm_only)
    assert {name: ok for name, (ok, _) in checks(TARGET, code=1).items()} == {
        "Decoder.decode": False,  # of its two kinds of call one is stored
        "Decoder.score": False,
        "Decoder.unused": None,
    }
    gearcache.prewarm(prewarmed.on_meta)
    assert checks(TARGET, code=0)["Decoder.decode"] == (True, "3 gears here")


def test_a_damaged_graph_is_not_ready(cache_dir: Path) -> None:
    gearcache.prewarm(prewarmed.warm_only)
    blob = max((cache_dir / "v4" / "blobs").glob("*/*"), key=lambda path: path.stat().st_size)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    assert gearcache.prewarm(prewarmed.warm_only, dry_run=True).is_complete, "only its name was looked for"
    ok, text = checks("tests.scenarios.prewarmed:warm_only", code=1)["Decoder.decode"]
    assert (ok, "sha256" in text) == (False, True)


def test_of_a_job_it_is_the_rank_of_the_environment(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = "tests.scenarios.collectives:build"
    gearcache.prewarm(collectives.build, world_size=2, ranks=[1])
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert checks(target, code=0) == {"Reduced.both, rank 1": (True, "2 gears here")}
    monkeypatch.setenv("RANK", "0")
    assert checks(target, code=1)["Reduced.both, rank 0"][0] is False


@pytest.mark.parametrize(
    "function, message",
    [("broken", "raised RuntimeError: the deployment script"), ("nothing", "called no cached method")],
)
def test_a_function_that_is_wrong_is_not_ready(function: str, message: str, cache_dir: Path) -> None:
    ok, text = checks(f"tests.scenarios.prewarmed:{function}", code=1)["function"]
    assert (ok, message in text) == (False, True)


def test_people_read_what_to_do(cache_dir: Path) -> None:
    told = run("doctor", "--ready", TARGET, code=1).stdout
    assert "FAIL  Decoder.decode  0 gears here, missing" in told
    assert f"-> `gearcache pull --require {TARGET}`, or `gearcache prewarm {TARGET}`" in told
    run("doctor", "--ready", "nowhere:build", code=2)
