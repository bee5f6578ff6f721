"""Entries in use: who registers, for how long, and what a reader can do without."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from gearcache.cache.locks import use as use_module
from gearcache.cache.locks.use import exclusive_use, register_use
from tests.support.at_once import at_once


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "use"


def test_a_use_is_shared_and_ends_when_it_is_closed_or_forgotten(path: Path) -> None:
    assert register_use(path) is None, "there is no entry"
    first = register_use(path, create=True)
    second = register_use(path)
    assert first is not None
    assert second is not None
    for use in (first, second):
        with exclusive_use(path) as alone:
            assert not alone
        use.close()
        use.close()
    with exclusive_use(path) as alone:
        assert alone
        assert register_use(path) is None, "the entry is being removed: nobody waits"
    third = register_use(path)
    assert third is not None
    del third
    with exclusive_use(path) as alone:
        assert alone


def test_a_file_that_lost_its_name_before_it_was_locked_is_no_use(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remover has the lock, unlinks the file and lets go, while another process has just opened it."""
    path.touch()

    def removed_first(descriptor: int, kind: int) -> None:
        path.unlink()
        fcntl.flock(descriptor, kind)

    class Fcntl:
        flock = staticmethod(removed_first)
        LOCK_SH, LOCK_NB = fcntl.LOCK_SH, fcntl.LOCK_NB

    monkeypatch.setattr(use_module, "fcntl", Fcntl)
    assert register_use(path) is None


def descriptors_of(path: Path) -> int:
    return sum(link.exists() and link.samefile(path) for link in Path("/proc/self/fd").iterdir())


def test_threads_that_begin_to_use_one_entry_at_once_share_it(path: Path) -> None:
    path.touch()
    begun = at_once(*[lambda: [register_use(path) for _ in range(50)]] * 16)
    uses = [use for each in begun for use in each]
    assert (len(uses), None in uses) == (800, False)
    del begun, uses[1:]
    assert descriptors_of(path) == 1
