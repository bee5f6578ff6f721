"""Files that appear whole or not at all, and reading them back verified."""

from __future__ import annotations

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest

from gearcache.cache.files import atomic
from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.files.trust import read_verified
from gearcache.errors import PublishError

BIG = os.urandom(3 << 20)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("data", [b"", BIG], ids=["empty", "several pieces"])
def test_what_is_written_is_read_back_in_place_of_an_old_file_that_its_readers_keep(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    with path.open("rb") as reader:
        write_atomic(path, data)
        assert reader.read() == b"old"
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_verified(path, sha256(data).hexdigest()) == data
    assert names_in(tmp_path) == ["file"]


def test_a_symbolic_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_bytes(b"precious")
    path.symlink_to(target)
    write_atomic(path, b"new")
    assert target.read_bytes() == b"precious"
    assert not path.is_symlink()


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "call, error", [("write", FULL), ("fsync", FULL), ("open", FULL), ("fsync", KeyboardInterrupt())]
)
def test_a_full_disk_or_an_interrupt_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, call, fail)
        with pytest.raises((PublishError, KeyboardInterrupt)) as caught:
            write_atomic(path, b"new")
    if error is FULL:
        assert isinstance(caught.value, PublishError)
        assert (caught.value.path, "No space left" in str(caught.value)) == (path, True)
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["file"]
