"""Waits of a thread end when what it does as a whole has to; what processes do with locks is in `test_concurrency`."""

from __future__ import annotations

import errno
import fcntl
import time
from pathlib import Path

import pytest

from gearcache.cache.locks.lock import key_lock, store_lock
from gearcache.errors import LockTimeout, PublishError
from gearcache.threads import waits_end_after


def test_locks_that_others_hold_are_given_up_then_and_waited_for_again_later(tmp_path: Path) -> None:
    path, begin = tmp_path / "lock", time.monotonic()
    with (
        key_lock(path, 0),
        waits_end_after(0.1),
        pytest.raises(LockTimeout, match=r"waited 0\.1 s"),
        key_lock(path, 60),
    ):
        pass
    with (
        store_lock(path, 1, alone=True),
        waits_end_after(0.1),
        pytest.raises(PublishError),
        store_lock(path, 60, alone=False),
    ):
        pass
    assert time.monotonic() - begin < 5
    with key_lock(path, 60):
        pass


def test_a_file_system_without_locks_gets_no_soft_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "flock not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(PublishError, match="cannot be locked"), key_lock(tmp_path / "lock", 0):
        pass
