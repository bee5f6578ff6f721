"""Locks between processes: shared, exclusive, with a time limit, and free when their holder dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from gearcache.cache.locks.lock import key_lock
from gearcache.errors import LockTimeout, PublishError


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a piece of code in a new process that can import what this one can."""
    prelude = "import os, sys\nfrom pathlib import Path\nfrom gearcache.cache.locks.lock import key_lock\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


HOLD = """
with key_lock(Path(sys.argv[1]), 10):
    print("held", flush=True)
    sys.stdin.readline()
"""
COUNT = """
counter = Path(sys.argv[2])
for _ in range(25):
    with key_lock(Path(sys.argv[1]), 60):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_many_processes_count_without_losing_one(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    children = [start(COUNT, tmp_path / "lock", counter) for _ in range(4)]
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    assert counter.read_text() == "100"


def test_a_lock_held_by_another_process_times_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = start(HOLD, path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LockTimeout) as caught, key_lock(path, 0.05):
        pass
    assert (caught.value.path, caught.value.seconds) == (path, 0.05)
    holder.communicate("go\n", timeout=200)
    with key_lock(path, 0):
        pass


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = start(HOLD, path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=200)
    with key_lock(path, 5):
        pass


def test_threads_of_one_process_exclude_one_another(tmp_path: Path) -> None:
    path, seen, inside = tmp_path / "lock", [], [0]

    def work() -> None:
        for _ in range(5):
            with key_lock(path, 60):
                inside[0] += 1
                seen.append(inside[0])
                inside[0] -= 1

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 20


def test_the_lock_is_not_reentrant_and_says_so_by_timing_out(tmp_path: Path) -> None:
    with key_lock(tmp_path / "lock", 0):
        with pytest.raises(LockTimeout), key_lock(tmp_path / "lock", 0):
            pass
        with pytest.raises(LockTimeout), key_lock(tmp_path / "lock", 0.01):
            pass


def test_the_file_stays_with_a_private_mode(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with key_lock(path, 0):
        inode = path.stat().st_ino
    assert path.stat().st_ino == inode
    assert path.stat().st_mode & 0o777 == 0o600
    with key_lock(path, 0):
        assert path.stat().st_ino == inode


def test_an_error_inside_frees_the_lock_and_passes_through(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="mine"), key_lock(tmp_path / "lock", 0):
        raise TimeoutError("mine")
    with key_lock(tmp_path / "lock", 0):
        pass


def test_a_lock_that_cannot_be_made_is_a_publish_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PublishError, match="cannot be locked"), key_lock(tmp_path / "file" / "lock", 0):
        pass


def test_a_file_system_without_locks_gets_no_soft_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "flock not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(PublishError, match="cannot be locked"), key_lock(tmp_path / "lock", 0):
        pass


def test_waiting_forever_is_not_offered(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 0"), key_lock(tmp_path / "lock", -1):
        pass


def test_filelock_is_not_imported_before_a_lock_is_taken(tmp_path: Path) -> None:
    code = """
import gearcache.cache
print("filelock" in sys.modules, "torch" in sys.modules)
with key_lock(Path(sys.argv[1]), 0): pass
print("filelock" in sys.modules)
"""
    assert start(code, tmp_path / "lock").communicate(timeout=200)[0] == "False False\nTrue\n"
