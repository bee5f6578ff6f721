"""Waits of a thread end when what it does as a whole has to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gearcache.cache.locks.lock import key_lock, store_lock
from gearcache.cache.locks.waits import waits_end_after
from gearcache.errors import LockTimeout, PublishError


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
