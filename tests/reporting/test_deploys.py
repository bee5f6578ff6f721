"""`gearcache diff`: what two caches or bundles share, and what the others differ in first."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gearcache.cache.layout import Layout
from tests.support.commands import run, run_json
from tests.support.recorded import store_geared

GEARS = ["ids.size(0)=1", "ids.size(0)=4"]


@pytest.fixture
def deployed(tmp_path: Path) -> tuple[Path, Path]:
    """A has decode of torch 2.12 and the old method; B has decode of torch 2.13; both have prefill."""
    a, b = tmp_path / "a", tmp_path / "b"
    store_geared(a, "Model.prefill", GEARS)
    shutil.copytree(a, b)
    store_geared(a, "Model.decode", GEARS, torch="2.12.0")
    store_geared(a, "Model.old", GEARS)
    store_geared(b, "Model.decode", GEARS, torch="2.13.0")
    return a, b


def check(found: dict[str, object], a: Path, b: Path) -> None:
    assert found["a"] == {"path": str(a), "entries": 3, "gears": 6}
    assert found["b"] == {"path": str(b), "entries": 2, "gears": 4}
    (shared,) = found["shared"]  # type: ignore[misc]
    assert (shared["method"], shared["gears_only_a"], shared["gears_only_b"], shared["trace"]) == (
        ("Model.prefill", [], [], "")
    )
    (new,) = found["only_b"]  # type: ignore[misc]
    assert (new["method"], new["gears"], new["compile_seconds"]) == ("Model.decode", 2, 5.0)
    assert (new["differs"]["fact"], new["differs"]["this"], new["differs"]["other"]) == (
        ("versions.torch", "'2.13.0'", "'2.12.0'")
    )
    decode, old = found["only_a"]  # type: ignore[misc]
    assert (decode["differs"]["this"], old["method"], old["differs"]) == ("'2.12.0'", "Model.old", None)


def test_entries_that_differ_name_the_first_fact_of_a_cache_and_of_its_bundle(
    deployed: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = deployed
    check(run_json("explain", str(a), str(b)), a, b)
    bundle = tmp_path / "b.tar"
    run("pack", "--file", str(bundle), "--cache-dir", str(b))
    check(run_json("explain", str(a), str(bundle)), a, bundle)


def test_entries_of_equal_keys_name_gears_and_checks_of_one_side(tmp_path: Path) -> None:
    store_geared(tmp_path / "a", "Model.decode", GEARS, checks=(True,))
    store_geared(tmp_path / "b", "Model.decode", [*GEARS, "ids.size(0)=8"], checks=(False,))
    found = run_json("explain", str(tmp_path / "a"), str(tmp_path / "b"))
    (shared,) = found["shared"]
    assert (shared["gears_only_a"], shared["gears_only_b"]) == ([], ["ids.size(0)=8"])
    assert (shared["trace"], shared["more"]) == ("only b: flag: equal False", 1)
    assert (found["only_a"], found["only_b"]) == ([], [])
    # Another check of the call: no gear of A serves a call of B.
    assert shared["compiles"] == [*GEARS, "ids.size(0)=8"]
    assert found["compiles"] == {"entries": 1, "gears": 3, "seconds": 7.5}
    run("explain", str(tmp_path / "a"), str(tmp_path / "b"), "--exit-code", code=1)
    text = run("explain", str(tmp_path / "a"), str(tmp_path / "b")).stdout
    assert "compiles 3 graphs of 1 entry, which took 7.5 s" in text
    assert f"a host with A compiles: {'; '.join(shared['compiles'])}" in text


def test_gears_that_the_other_side_serves_are_not_compiled(tmp_path: Path) -> None:
    store_geared(tmp_path / "a", "Model.decode", [*GEARS, "ids.size(0)=9"], checks=(True, False))
    store_geared(tmp_path / "b", "Model.decode", [*GEARS, "ids.size(0)=8"], checks=(False,))
    found = run_json("explain", str(tmp_path / "a"), str(tmp_path / "b"))
    assert found["compiles"] == {"entries": 1, "gears": 1, "seconds": 2.5}
    assert found["shared"][0]["compiles"] == ["ids.size(0)=8"]
    assert run_json("explain", str(tmp_path / "a"), str(tmp_path / "a"), "--exit-code")["compiles"]["entries"] == 0


@pytest.mark.parametrize(
    "change, told",
    [
        ({"sizes": [[2, 16]]}, "ids.size(0)=2 (ids is of sizes [2, 16], stored is of sizes [2, 8])"),
        ({"strides": [[1, 2]]}, "ids.size(0)=2 (ids is of strides [1, 2], stored is of strides [8, 1])"),
        ({"conditions": ["s0 < 9"]}, "ids.size(0)=2"),
    ],
)
def test_a_gear_of_the_same_text_for_other_tensors_is_compiled(
    change: dict[str, object], told: str, tmp_path: Path
) -> None:
    tensor = {"dtype": "int64", "sizes": [[2, 8]], "strides": [[8, 1]]}
    store_geared(tmp_path / "a", "Model.decode", ["ids.size(0)=2"], tensor=tensor)
    store_geared(tmp_path / "b", "Model.decode", ["ids.size(0)=2"], tensor=tensor | change)
    found = run_json("explain", str(tmp_path / "a"), str(tmp_path / "b"), "--exit-code", code=1)
    assert found["compiles"]["gears"] == 1
    assert found["shared"][0]["compiles"] == [told]
    assert "0 of them without a difference" in run("explain", str(tmp_path / "a"), str(tmp_path / "b")).stdout
    assert run_json("explain", str(tmp_path / "b"), str(tmp_path / "b"), "--exit-code")["compiles"]["gears"] == 0


def test_what_has_gone_through_an_edited_file_is_compiled(tmp_path: Path) -> None:
    for name, digest in (("a", "1"), ("b", "1"), ("c", "2")):
        store_geared(tmp_path / name, "Model.decode", GEARS, sources=[["helper", digest * 64]])
    assert run_json("explain", str(tmp_path / "a"), str(tmp_path / "b"))["compiles"]["gears"] == 0
    assert run_json("explain", str(tmp_path / "a"), str(tmp_path / "c"))["compiles"]["gears"] == 2


def test_a_damaged_entry_is_not_taken_for_one_that_is_missing(tmp_path: Path) -> None:
    key = store_geared(tmp_path / "a", "Model.decode", GEARS)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    Layout(tmp_path / "b").manifest(key).write_bytes(b"damaged")
    found = run_json("explain", str(tmp_path / "a"), str(tmp_path / "b"), "--exit-code", code=1)
    assert (found["only_a"], found["unread_b"]) == ([], [f"Model.decode-{key.digest[:12]}"])
    assert (
        "1 entry of B cannot be read: Model.decode-" in run("explain", str(tmp_path / "a"), str(tmp_path / "b")).stdout
    )
    (row,) = run_json("explain", str(tmp_path / "b"), str(tmp_path / "a"))["only_b"]
    assert (row["differs"]["fact"], row["differs"]["other"]) == ("entry", "damaged")
