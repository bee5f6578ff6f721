"""The files of locks; what processes do with them is in `tests/product/test_concurrency.py`."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from gearcache.cache.locks.lock import key_lock
from gearcache.errors import PublishError


def test_a_file_system_without_locks_gets_no_soft_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "flock not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(PublishError, match="cannot be locked"), key_lock(tmp_path / "lock", 0):
        pass
