"""Pruning a tier, and looking at how one is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gearcache.cache.keys.siblings import family_of
from gearcache.cache.layout import Layout
from gearcache.cache.remote.admin.holdings import blobs, holdings
from gearcache.cache.remote.admin.prune import RemotePrune, RemotePruned
from gearcache.cache.remote.admin.push import push_entries
from gearcache.cache.remote.admin.survey import survey
from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.protocol import Deadline
from gearcache.cache.remote.names import EntryName, blob_name
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.urls import TierURL
from tests.support.commands import DECODE
from tests.support.stored_gears import store_gears

NAME = EntryName(DECODE.safe_label, DECODE.digest)
FAMILY = family_of(DECODE.lowered())
TRUST = Trust.from_environment({})
DAY = 86400.0
NOW = 100 * DAY


@pytest.fixture
def share(tmp_path: Path) -> Path:
    (tmp_path / "share").mkdir()
    return tmp_path / "share"


def tier(share: Path, *, unsigned: bool = True, read_only: bool = False) -> Tier:
    return Tier(TierURL(f"folder:{share}", unsigned=unsigned, read_only=read_only), Layout(share.parent / "host"))


def store(share: Path, host: str, gears: dict[str, bytes], *, days: float) -> str:
    """Store what a host compiled some days ago; returns the name of the manifest."""
    root = share.parent / host
    store_gears(root, DECODE, gears, created=NOW - days * DAY)
    target = tier(share)
    # Nobody compares: a host that uploads at the same time as another one does not see what that stores.
    outcome = push_entries(target, Layout(root), [NAME], TRUST, lambda others, own: False)
    assert outcome.failed == {}
    return NAME.manifest(Layout(root).manifest(DECODE).read_bytes(), FAMILY)


def prune(
    target: Tier,
    days: float | None = None,
    *,
    dry_run: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> RemotePruned:
    def sleep(seconds: float) -> None:
        assert seconds == 60
        meanwhile()

    pruning = RemotePrune(target, clock=lambda: NOW, sleep=sleep)
    return pruning.run(None if days is None else days * DAY, 60, dry_run=dry_run)


def digest_of(blob: bytes) -> str:
    return sha256(blob).hexdigest()


def names(target: Tier) -> list[str]:
    return holdings(target, Deadline.after(10)).names


def blobs_of(target: Tier) -> list[str]:
    return blobs(target, Deadline.after(10))


def test_old_manifests_go_with_the_blobs_that_nothing_else_names(share: Path) -> None:
    old = store(share, "a", {"1": b"one", "2": b"two"}, days=40)
    young = store(share, "b", {"2": b"two", "3": b"three"}, days=10)
    target = tier(share)
    dry = prune(target, 30, dry_run=True)
    assert (dry.old, dry.blobs, dry.left) == ([old], [digest_of(b"one")], 1)
    assert names(target) == sorted([old, young])
    done = prune(target, 30)
    assert (done.old, done.late, done.blobs, done.unread) == (dry.old, [], dry.blobs, {})
    assert done.freed == dry.freed > len(b"one")
    assert names(target) == [young]
    assert blobs_of(target) == sorted(map(digest_of, (b"two", b"three")))
    assert prune(target, 30).freed == 0


def test_a_manifest_that_cannot_be_read_stays_and_so_do_all_blobs(share: Path) -> None:
    old = store(share, "a", {"1": b"one"}, days=40)
    store(share, "b", {"2": b"two"}, days=40)
    damaged = share / store(share, "c", {"3": b"three"}, days=40)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert prune(tier(share), 30, dry_run=True).blobs == []
    done = prune(tier(share), 30)
    assert (old in done.old, len(done.old), done.blobs, len(done.unread)) == (True, 2, [], 1)
    assert damaged.exists()
    assert len(blobs_of(tier(share))) == 3


def test_blobs_of_an_upload_under_way_stay(share: Path) -> None:
    store(share, "a", {"1": b"one"}, days=1)
    store(share, "b", {"2": b"two"}, days=1)
    manifest = store(share, "c", {"3": b"three"}, days=1)
    data = (share / manifest).read_bytes()
    (share / manifest).unlink()  # its blobs are there already, it is not
    lone = b"nobody's"
    FolderRemote(share).put(blob_name(digest_of(lone)), lone, Deadline.after(10))
    done = prune(tier(share), 30, meanwhile=lambda: (share / manifest).write_bytes(data))
    assert (done.blobs, done.freed) == ([digest_of(lone)], len(lone))
    assert digest_of(b"three") in blobs_of(tier(share))


def test_blobs_that_are_pruned_during_an_upload_are_sent_again(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = FolderRemote.put

    def slow(self: FolderRemote, name: str, data: bytes, deadline: Deadline, **how: object) -> bool:
        if "/entries/" in name:  # an upload that took longer than whoever prunes had patience
            for path in (share / "v7" / "blobs").rglob("*"):
                if path.is_file():
                    path.unlink()
        return put(self, name, data, deadline, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(FolderRemote, "put", slow)
    store(share, "a", {"2": b"two", "4": b"four"}, days=1)
    assert all((share / blob_name(digest_of(blob))).exists() for blob in (b"two", b"four"))


def test_a_manifest_that_comes_while_its_blobs_go_goes_too(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host took them for present; whoever saw the manifest would take it for whole, and store none of its own."""
    manifest = store(share, "a", {"1": b"one"}, days=1)
    data = (share / manifest).read_bytes()
    (share / manifest).unlink()
    delete = FolderRemote.delete

    def deleted(self: FolderRemote, name: str, deadline: Deadline) -> None:
        delete(self, name, deadline)
        if name == blob_name(digest_of(b"one")):
            (share / manifest).write_bytes(data)

    monkeypatch.setattr(FolderRemote, "delete", deleted)
    assert prune(tier(share)).late == [manifest]
    assert names(tier(share)) == []


def test_a_manifest_whose_blobs_are_back_stays(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An uploader stores the manifest, and then sends the blobs again that it misses."""
    manifest = store(share, "a", {"1": b"one"}, days=1)
    data = (share / manifest).read_bytes()
    (share / manifest).unlink()
    delete, blob = FolderRemote.delete, share / blob_name(digest_of(b"one"))

    def deleted(self: FolderRemote, name: str, deadline: Deadline) -> None:
        delete(self, name, deadline)
        if name == blob_name(digest_of(b"one")):
            (share / manifest).write_bytes(data)
            blob.write_bytes(b"one")

    monkeypatch.setattr(FolderRemote, "delete", deleted)
    assert prune(tier(share)).late == []
    assert (names(tier(share)), blob.exists()) == ([manifest], True)


def test_files_that_killed_uploaders_left_go_after_a_day(share: Path) -> None:
    store(share, "a", {"1": b"one"}, days=1)
    folder = (share / blob_name(digest_of(b"one"))).parent
    old, young = (folder / name for name in (".tmp-host-1-a", ".tmp-host-2-b"))
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 1.1 * DAY,) * 2)
    for dry_run in (True, False):
        assert prune(tier(share), dry_run=dry_run).unfinished == 1
    assert [path.exists() for path in (old, young)] == [False, True]
    assert prune(tier(share)).unfinished == 0


def test_a_survey_tries_an_engine_and_leaves_nothing_behind(share: Path) -> None:
    manifest = store(share, "a", {"1": b"one"}, days=1)
    found = survey(tier(share), TRUST)
    assert (found.problem, found.leases, found.entries, found.manifests) == ("", True, 1, 1)
    assert (found.signers, found.refused, found.read, found.resting) == ({"nobody": 1}, {}, 1, 0.0)
    assert 0 < (found.get_seconds or 0) < 1
    assert 0 < (found.put_seconds or 0) < 1
    assert found.size == len(b"one") + (share / manifest).stat().st_size
    assert FolderRemote(share).names("v7/probes/", 10, Deadline.after(10)) == []
