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
    del disk  # the end of a use is one too
    path = Layout(cache_dir).use(key)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    os.utime(path.with_name("manifest.msgpack"), (moment, moment))


def test_list_shows_every_entry_and_rank_once(cache_dir: Path) -> None:
    path = store(cache_dir, PREFILL, b"p" * 3000)
    store(cache_dir, DECODE, b"d" * 10, ranks="rank1")
    use(cache_dir, PREFILL)
    result = run("list", "--sort", "name")
    header, *rows = [line.split() for line in result.stdout.splitlines()]
    assert header == ["Method", "Key", "Ranks", "Graphs", "Size", "Used", "Hits", "Made", "Torch"]
    assert [row[:4] for row in rows] == [
        ["Model.decode", DECODE.digest[:12], "rank1", "2"],
        ["Model.prefill", PREFILL.digest[:12], "-", "2"],
    ]
    assert result.stderr.startswith("note: 2 entries, ")
    (entry,) = listed("Model.prefill")
    assert (entry["key"], entry["path"]) == (PREFILL.digest, str(path))
    assert entry["gears"] == ["ids.size(0)=1", "ids.size(0)=2"]
    assert (entry["hits"], entry["compile_seconds"]) == (1, 90.0)


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


def test_explain_compares_two_entries(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d")
    store(cache_dir, PREFILL, b"d")
    found = run_json("explain", "Model.decode", "Model.prefill")
    assert found["key"] == [{"path": "gears", "wanted": "[1, 2]", "stored": "[8]"}]


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


def test_clear_waits_for_users(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"decode")
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom gearcache.cache.locks.use import register_use\n"
        "use = register_use(Path(sys.argv[1]))\nprint('ready', flush=True)\ntime.sleep(0.3)"
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
