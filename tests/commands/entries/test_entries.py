"""The commands that list, show, compare, check, remove and carry entries."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore
from tests.support.commands import DECODE, DECODE_OLD, PREFILL, listed, run, run_json, store


def use(cache_dir: Path, key: object, age: float = 0.0) -> None:
    """Count a load of an entry, `age` seconds ago."""
    disk = DiskStore(Layout(cache_dir))
    assert disk.use(key)
    disk.count_load(key)
    path = Layout(cache_dir).use(key)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    os.utime(path.with_name("manifest.msgpack"), (moment, moment))


# -- list ---------------------------------------------------------------------------------------------------


def test_list_shows_every_entry_and_rank_once(cache_dir: Path) -> None:
    path = store(cache_dir, PREFILL, b"p" * 3000)
    store(cache_dir, DECODE, b"d" * 10, ranks="rank1")
    use(cache_dir, PREFILL)
    result = run("list", "--sort", "name")
    header, *rows = [line.split() for line in result.stdout.splitlines()]
    assert header == ["Method", "Key", "Ranks", "Gears", "Size", "Used", "Hits", "Made", "Torch"]
    assert [row[:4] for row in rows] == [
        ["Model.decode", DECODE.digest[:12], "rank1", "2"],
        ["Model.prefill", PREFILL.digest[:12], "-", "2"],
    ]
    assert result.stderr.startswith("note: 2 entries, ")
    (entry,) = listed("Model.prefill")
    assert (entry["key"], entry["path"]) == (PREFILL.digest, str(path))
    assert entry["gears"] == ["ids.size(0)=1", "ids.size(0)=2"]
    assert (entry["hits"], entry["compile_seconds"]) == (1, 90.0)


def test_list_filters_by_method_and_sorts(cache_dir: Path) -> None:
    for key, size in ((DECODE, 10), (PREFILL, 3000), (DECODE_OLD, 500)):
        store(cache_dir, key, os.urandom(size))
    assert [entry["key"] for entry in listed("*.decode", "--sort", "size")] == [
        DECODE_OLD.digest,
        DECODE.digest,
    ]
    assert listed("Other.*") == []


# -- show and explain ---------------------------------------------------------------------------------------


def test_an_entry_is_found_by_name_key_both_and_path(cache_dir: Path) -> None:
    path = store(cache_dir, DECODE, b"d")
    for name in ("Model.decode", DECODE.digest, DECODE.digest[:6], f"Model.decode-{DECODE.digest[:4]}", str(path)):
        assert f"Key       {DECODE.digest}" in run("show", name).stdout


def test_of_several_entries_the_newest_is_shown_and_the_others_are_told(cache_dir: Path) -> None:
    store(cache_dir, DECODE_OLD, b"d")
    store(cache_dir, PREFILL, b"d")
    time.sleep(0.02)
    store(cache_dir, DECODE, b"d")
    assert "no entry is called `Model.other`" in run("show", "Model.other", code=2).stderr
    result = run("show", "Model.decode")
    assert f"Key       {DECODE.digest}" in result.stdout
    assert "2 entries are called `Model.decode`; this is the newest, the others are" in result.stderr
    assert f"Model.decode-{DECODE_OLD.digest[:12]}: made now, 2 gears, torch 2.13.0, 0 hits" in result.stderr
    text = run("explain", "Model.decode").stdout
    assert f"stored  Model.decode-{DECODE_OLD.digest[:12]}" in text
    assert "  versions.torch: wanted '2.13.0', stored '2.12.0'" in text


def test_ranks_of_one_key_are_told_apart_by_their_paths(cache_dir: Path) -> None:
    paths = [store(cache_dir, DECODE, b"d", ranks) for ranks in ("rank0", "rank1")]
    text = run("show", DECODE.digest).stderr
    assert any(str(path.parent) in text for path in paths)
    assert "Ranks     rank1" in run("show", str(paths[1])).stdout


def test_clear_takes_all_entries_of_a_method_or_a_pattern(cache_dir: Path) -> None:
    for key in (DECODE, DECODE_OLD, PREFILL):
        store(cache_dir, key, os.urandom(8))
    planned = run_json("clear", "--entry", "Model.decode", "--dry-run")
    assert len(listed()) == 3
    done = run_json("clear", "--entry", "Model.decode")
    assert (planned["freed"], planned["blobs"]) == (done["freed"], done["blobs"]) == (done["freed"], 2)
    assert [entry["method"] for entry in listed()] == ["Model.prefill"]
    store(cache_dir, DECODE, b"d")
    assert "no entry is called `Other.*`" in run("clear", "--entry", "Other.*", code=2).stderr
    assert "removed 2 entries" in run("clear", "--entry", "Model.*").stdout


@pytest.mark.parametrize("answer, expected", [("n", 130), ("y", 0)])
def test_clear_asks_on_a_terminal_before_all_goes(cache_dir: Path, answer: str, expected: int) -> None:
    store(cache_dir, DECODE, b"d")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "gearcache", "clear", "--all"])
    said = b""
    while b"]:" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, f"{answer}\n".encode())
    with contextlib.suppress(OSError):  # its end is an error
        while more := os.read(terminal, 1024):
            said += more
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == expected
    os.close(terminal)
    assert b"Remove all 1 entry (" in said
    assert len(listed()) == (answer == "n")


def test_stats_add_up_each_method_and_count_shared_blobs_once(cache_dir: Path) -> None:
    for key, blob in ((DECODE, b"d" * 3000), (DECODE_OLD, b"d" * 3000), (PREFILL, b"p" * 500)):
        store(cache_dir, key, blob)
    found = run_json("stats")
    assert {row["method"]: row["entries"] for row in found["methods"]} == {"Model.decode": 2, "Model.prefill": 1}
    sizes = {row["method"]: row["size"] for row in found["methods"]}
    assert 3000 < sizes["Model.decode"] < 6000
    assert found["size"] == sum(sizes.values())


def test_explain_compares_two_entries(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d")
    store(cache_dir, PREFILL, b"d")
    found = run_json("explain", "Model.decode", "Model.prefill")
    assert found["key"] == [{"path": "gears", "wanted": "[1, 2]", "stored": "[8]"}]


def test_explain_says_that_there_is_nothing_to_compare_with(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d")
    assert "no other entry to compare" in run("explain", "Model.decode").stderr
    assert run_json("explain", "Model.decode")["stored"] is None


# -- verify -------------------------------------------------------------------------------------------------


# -- clear and prune ----------------------------------------------------------------------------------------


def test_clear_wants_to_know_what(cache_dir: Path) -> None:
    assert "say what to remove" in run("clear", code=2).stderr
    assert "say what to remove" in run("clear", "--all", "--older-than", "1d", code=2).stderr


def test_clear_removes_what_was_not_used_for_long(cache_dir: Path) -> None:
    age = 3600.0 * 30
    for key in (DECODE, DECODE_OLD):
        store(cache_dir, key, key.digest.encode(), clock=lambda: time.time() - age)
    store(cache_dir, PREFILL, b"prefill")
    for key, seconds in ((DECODE, age), (DECODE_OLD, 60.0), (PREFILL, age)):
        use(cache_dir, key, seconds)
    kept = "PREFILL was made, and DECODE_OLD used, less than a day ago"
    assert [row["key"] for row in run_json("clear", "--older-than", "1d")["removed"]] == [DECODE.digest], kept
    assert len(listed()) == 2, kept


def test_clear_all_leaves_nothing_behind(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"decode")
    blob = next(cache_dir.glob("v*/blobs/*/*"))
    blob.with_name(".writing-1-2").write_bytes(b"of a dead writer")
    quarantined = Layout(cache_dir).quarantine("bad")
    quarantined.write_bytes(b"bad")
    run("clear", "--all")
    assert listed() == []
    assert not list(cache_dir.glob("v*/blobs/*/*"))
    assert not quarantined.exists()


def test_clear_waits_for_users(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"decode")
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom gearcache.cache.locks.use import register_use\n"
        "use = register_use(Path(sys.argv[1]))\nprint('ready', flush=True)\ntime.sleep(1.0)"
    )
    user = subprocess.Popen(
        [sys.executable, "-c", program, str(Layout(cache_dir).use(DECODE))], stdout=subprocess.PIPE, text=True
    )
    with user:
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n"
        run("clear", "--all", code=4)
        run("clear", "--all", "--wait", "30s")
    assert listed() == []


def test_prune_drops_the_least_recently_used_first(cache_dir: Path) -> None:
    for key in (DECODE, PREFILL, DECODE_OLD):
        store(cache_dir, key, os.urandom(10_000))
        use(cache_dir, key)
        time.sleep(0.01)
    use(cache_dir, DECODE)
    assert [entry["key"] for entry in listed()] == [DECODE.digest, DECODE_OLD.digest, PREFILL.digest], "last used first"
    planned = run_json("prune", "--max-size", "25kB", "--dry-run")
    assert [entry["key"] for entry in planned["removed"]] == [PREFILL.digest]
    assert "removed 1 entry and 1 blob" in run("prune", "--max-size", "25kB").stdout
    assert {entry["key"] for entry in listed()} == {DECODE.digest, DECODE_OLD.digest}
    assert "give a limit" in run("prune", code=2).stderr
    assert "`ten` is no size" in run("prune", "--max-size", "ten", code=2).stderr
    assert "`ten` is no age" in run("prune", "--older-than", "ten", code=2).stderr


# -- bundles ------------------------------------------------------------------------------------------------


def test_a_bundle_carries_entries_to_another_cache(cache_dir: Path, tmp_path: Path) -> None:
    store(cache_dir, DECODE, b"decode")
    store(cache_dir, PREFILL, b"prefill")
    bundle, other = tmp_path / "bundle.tar", ("--cache-dir", str(tmp_path / "other"))
    assert "packed 1 entry with 1 blob" in run("pack", "--file", str(bundle), "Model.decode").stdout
    assert "brought 1 entry with 1 blob" in run("pull", "--file", str(bundle), *other).stdout
    assert [entry["key"] for entry in listed(*other)] == [DECODE.digest]
    assert run_json("pull", "--file", str(bundle), *other)["present"] == [DECODE.name]
    assert len(run_json("pack", "--file", str(bundle))["entries"]) == 2


def test_a_bundle_that_is_none_is_one_line_and_exit_code_3(cache_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "bundle.tar").write_bytes(b"no bundle")
    result = run("pull", "--file", str(tmp_path / "bundle.tar"), code=3)
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert "nothing to pack" in run("pack", "--file", str(tmp_path / "x.tar"), code=2).stderr
