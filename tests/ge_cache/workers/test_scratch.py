"""Temporary folders: gone with their owner, or collected after it was killed; others' stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gearcache.ge_cache.workers.scratch import LOCK, PREFIX, Scratch, collect_scratch

OWNER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from gearcache.ge_cache.workers.scratch import Scratch
(scratch := Scratch()).path.joinpath("deep").mkdir()
scratch.path.joinpath("deep", "file").write_text("x")
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def grow_old(folder: Path) -> None:
    os.utime(folder / LOCK, (time.time() - 3600,) * 2)


def test_the_folder_of_a_killed_process_is_collected_and_that_of_a_live_one_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        grow_old(folder)
        assert collect_scratch() == []
        assert (folder / "deep" / "file").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert collect_scratch() == [folder]
    assert not folder.exists()


def test_what_only_looks_like_one_stays(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("mine")
    (tmp_path / "victim" / LOCK).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "victim")
    (tmp_path / f"{PREFIX}bare").mkdir()
    (tmp_path / f"{PREFIX}file").write_text("mine")
    linked = tmp_path / f"{PREFIX}lock"
    linked.mkdir()
    (linked / LOCK).symlink_to(tmp_path / "victim" / LOCK)
    grow_old(tmp_path / "victim")
    before = sorted(tmp_path.rglob("*"))
    assert collect_scratch() == []
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_folder_of_another_user_stays(tmp_path: Path) -> None:
    scratch = Scratch()
    grow_old(scratch.path)
    os.chown(scratch.path, 65534, 65534)
    os.close(scratch._lock)
    scratch._lock = -1
    assert collect_scratch() == []
    assert scratch.path.exists()
