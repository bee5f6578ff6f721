"""A host without further threads, and locks and settings that a forked child finds as if nobody else had run."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest

from gearcache.cache.layout import Layout
from gearcache.cache.remote.engines.protocol import Deadline, RemoteError
from gearcache.cache.remote.lease import Lease
from gearcache.cache.remote.outbox import Outbox
from gearcache.cache.remote.requests.deadline import within
from gearcache.cache.remote.requests.parallel import at_once
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.urls import parse_urls
from gearcache.collection import rare_collection
from gearcache.telemetry.progress import BuildProgress, WaitLine
from gearcache.threads import freed_in_forks
from tests.support.no_threads import NoThreads


def test_without_threads_work_is_done_here_or_refused(no_threads: NoThreads, tmp_path: Path) -> None:
    assert at_once(lambda item: item + 1, [1, 2, 3]) == [2, 3, 4]
    with pytest.raises(RemoteError, match="no thread can be started"):
        within(Deadline.after(1.0), "x", lambda: None)
    with BuildProgress("M.f", 1), WaitLine("M.f", 1.0):
        pass
    done = threading.Event()
    outbox = Outbox()
    assert not outbox.add(done.set)
    no_threads.after = 1
    assert outbox.add(done.set)
    assert outbox.flush(60.0) == 0
    assert done.is_set()


def test_a_lease_without_a_thread_for_its_beats_is_released(no_threads: NoThreads, tmp_path: Path) -> None:
    no_threads.after = 100
    tier = Tier(parse_urls(f"folder:{tmp_path}?unsigned=1", "test")[0], Layout(tmp_path / "cache"))
    lease = Lease(tier, "v7/leases/one")
    assert tier.ask(lambda remote: lease._create(remote, Deadline.after(30.0)))
    assert Lease(tier, "v7/leases/one").holder() is not None
    no_threads.after = 0
    lease.resume()
    no_threads.after = 100
    lease.release()
    assert Lease(tier, "v7/leases/one").holder() is None


def test_a_forked_child_finds_locks_free_and_the_collector_as_it_was() -> None:
    lock, before = freed_in_forks(threading.Lock()), gc.get_threshold()
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock, rare_collection():
            is_held.set()
            may_end.wait(60.0)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(60.0)
    assert gc.get_threshold() != before
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=5.0) and gc.get_threshold() == before else 1)
    may_end.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    assert gc.get_threshold() == before


def test_uploads_that_are_left_at_the_end_are_counted_by_what_they_wait_for() -> None:
    outbox = Outbox()
    assert outbox.add(lambda: 100.0)
    assert outbox.flush(10.0) == 1
    assert outbox.add(lambda: 100.0)  # the one that rests does not hold it up
    assert outbox.flush(10.0) == 2
    assert outbox.left_text(10.0) == "2 uploads wait for a tier that failed"
    release = threading.Event()
    assert outbox.add(lambda: release.wait(60) and None)
    assert outbox.flush(0.1) == 3
    assert outbox.left_text(0.1) == (
        "1 upload had not ended 0.1 s after the program had, 2 uploads wait for a tier that failed"
    )
    release.set()
    assert Outbox().left_text(10.0) == ""
