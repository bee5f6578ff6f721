"""Locks between processes: exclusive, with a time limit, and free when their holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gearcache.cache.locks.lock import key_lock
from gearcache.errors import LockTimeout, PublishError

HOLD = """
import sys
from pathlib import Path
from gearcache.cache.locks.lock import key_lock
with key_lock(Path(sys.argv[1]), 10):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_lock_held_by_another_process_times_out_and_is_free_when_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LockTimeout) as caught, key_lock(path, 0.05):
        pass
    assert (caught.value.path, caught.value.seconds) == (path, 0.05)
    holder.kill()
    holder.communicate(timeout=200)
    with key_lock(path, 5):
        pass


def test_the_file_stays_with_a_private_mode(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with key_lock(path, 0):
        inode = path.stat().st_ino
    assert path.stat().st_ino == inode
    assert path.stat().st_mode & 0o777 == 0o600
    with key_lock(path, 0):
        assert path.stat().st_ino == inode


def test_a_file_system_without_locks_gets_no_soft_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "flock not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(PublishError, match="cannot be locked"), key_lock(tmp_path / "lock", 0):
        pass
