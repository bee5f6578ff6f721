"""`gearcache pack`: which entries, what it tells, and what it refuses."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from gearcache.cache.layout import Layout
from tests.support.commands import DECODE, PREFILL, listed, run, run_json, store


def test_entries_are_packed_all_or_those_that_are_named(cache_dir: Path, tmp_path: Path) -> None:
    for key in (DECODE, PREFILL):
        store(cache_dir, key, b"code")
    whole, part = tmp_path / "whole", tmp_path / "part"
    told = run("pack", "--oci", str(whole)).stdout.splitlines()
    assert told[0] == f"packed 2 entries with 1 blob into `{whole}`"
    (listed,) = json.loads((whole / "index.json").read_text())["manifests"]
    assert told[1] == listed["digest"]
    document = run_json("pack", "--oci", str(part), "Model.decode")
    assert (document["entries"], document["blobs"], document["size"]) == ([DECODE.name], 1, 4)
    assert document["digest"] != told[1]
    assert document["root"] == "/var/cache/gearcache"
    assert run_json("pack", "--oci", str(tmp_path / "again"), "Model.*")["digest"] == told[1]


def test_nothing_to_pack_another_folder_and_damage_are_told(cache_dir: Path, tmp_path: Path) -> None:
    assert "nothing to pack" in run("pack", "--oci", str(tmp_path / "image"), code=2).stderr
    store(cache_dir, DECODE, b"code")
    assert "no entry is called `other`" in run("pack", "--oci", str(tmp_path / "image"), "other", code=2).stderr
    for both in ([], ["--oci", "a", "--folder", "b"]):
        assert "name one of --oci DIR, --folder DIR and --file FILE" in run("pack", *both, code=2).stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    assert "holds something else than an image" in run("pack", "--oci", str(tmp_path / "mine"), code=3).stderr
    (blob,) = Layout(cache_dir).blobs()
    blob.write_bytes(b"edoc")
    assert "sha256" in run("pack", "--oci", str(tmp_path / "image"), code=3).stderr
    assert not (tmp_path / "image" / "index.json").exists()


def test_what_is_packed_into_a_folder_is_a_cache_that_any_user_may_read(cache_dir: Path, tmp_path: Path) -> None:
    for key in (DECODE, PREFILL):
        store(cache_dir, key, b"code")
    folder, before = tmp_path / "made" / "packed", os.umask(0o077)
    try:
        document = run_json("pack", "--folder", str(folder))
        run("pack", "--folder", os.path.relpath(tmp_path / "one"), "Model.decode")
    finally:
        os.umask(before)
    assert (document["digest"], document["root"], document["size"]) == ("", str(folder), 4)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*")) if path.is_dir()}
    assert modes == {0o755}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o644}
    assert {entry["method"] for entry in listed("--cache-dir", str(folder))} == {"Model.decode", "Model.prefill"}
    run("verify", "--cache-dir", str(folder))
    assert [entry["method"] for entry in listed("--cache-dir", str(tmp_path / "one"))] == ["Model.decode"]
    assert "is not empty; name a new folder" in run("pack", "--folder", str(folder), code=2).stderr
    next(path for path in (cache_dir / "v7" / "blobs").rglob("*") if path.is_file()).write_bytes(b"soil")
    for _ in range(2):
        assert "is corrupt" in run("pack", "--folder", str(tmp_path / "two"), code=3).stderr
