"""Files that others could have written are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.files.trust import read_trusted
from gearcache.errors import CorruptEntry, UnsafePath


def give_to_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Really where the tests run as root, else by pretending to be somebody else."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)


def test_a_file_over_the_limit_is_corrupt(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", b"data")
    with pytest.raises(CorruptEntry, match="4 bytes, more than the limit of 3"):
        read_trusted(tmp_path / "file", 3)


@pytest.mark.parametrize("mode", [0o620, 0o602], ids=oct)
def test_a_file_that_others_can_write_is_not_trusted(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"data")
    path.chmod(mode)
    with pytest.raises(UnsafePath, match="lets others write") as caught:
        read_trusted(path)
    assert "chmod go-w" in caught.value.remedy


def test_a_file_of_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomic(tmp_path / "file", b"data")
    give_to_another_user(tmp_path / "file", monkeypatch)
    with pytest.raises(UnsafePath, match="belongs to user"):
        read_trusted(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of root")
def test_a_file_of_root_is_trusted_by_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomic(tmp_path / "file", b"data")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert read_trusted(tmp_path / "file") == b"data"


def test_no_descriptor_stays_open_after_a_refusal(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(UnsafePath):
            read_trusted(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
