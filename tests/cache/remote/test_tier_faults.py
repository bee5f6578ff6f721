"""What counts as a fault of a tier: writes that fail leave reads alone, and what is no fault lets the tier go on."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path

import pytest

from gearcache.cache.layout import Layout
from gearcache.cache.remote.breaker import FAULTS
from gearcache.cache.remote.engines import retrying
from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.protocol import Deadline, Denied, Late, RemoteError
from gearcache.cache.remote.fetch import fetch_blobs
from gearcache.cache.remote.lease import Lease
from gearcache.cache.remote.names import blob_name
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.urls import parse_urls
from tests.cache.remote.real_engines import redis_server, soon


def tier_at(url: str, tmp_path: Path) -> Tier:
    layout = Layout(tmp_path / "host")
    layout.prepare()
    (parsed,) = parse_urls(url, "test")
    return Tier(parsed, layout)


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    (tmp_path / "share").mkdir()
    FolderRemote(tmp_path / "share").put("v7/a", b"data", soon())
    return tier_at(f"folder:{tmp_path / 'share'}", tmp_path)


def fail(error: RemoteError) -> None:
    raise error


def test_denied_writes_stop_writes_alone(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("user default on nopass ~* +@all\nuser reader on >pw ~* +@all -@write\n")
    with redis_server("--aclfile", str(tmp_path / "users")) as port:
        reader = tier_at(f"redis://reader:pw@127.0.0.1:{port}/0", tmp_path)
        reader.ask(lambda remote: remote.names("v7/", 10, soon()))
        with pytest.raises(Denied, match="NoPermission"):
            reader.write(lambda remote: remote.put("v7/a", b"data", soon()))
        assert (reader.takes_writes, reader.is_resting) == (False, False)
        assert 0 < reader.rest_seconds <= 60
        reader.ask(lambda remote: remote.names("v7/", 10, soon()))
        assert not reader.takes_writes, "reads say nothing about writes"


def test_failed_writes_leave_reads_and_failed_reads_stop_both(tier: Tier) -> None:
    for _ in range(FAULTS):
        with pytest.raises(RemoteError):
            tier.write(lambda _: fail(RemoteError("tier", "gone")))
    assert (tier.takes_writes, tier.is_resting) == (False, False)
    tier.write(lambda _: None)
    assert tier.takes_writes
    for _ in range(FAULTS):
        with pytest.raises(RemoteError):
            tier.ask(lambda _: fail(RemoteError("tier", "gone")))
    assert (tier.takes_writes, tier.is_resting) == (False, True)


def test_a_lease_that_cannot_be_taken_is_one_fault(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "PAUSES", (0.0, 0.0))
    for operation in ("get", "put"):
        monkeypatch.setattr(FolderRemote, operation, lambda *_, **__: fail(RemoteError("tier", "gone")))
    with pytest.raises(RemoteError):
        Lease(tier, "v7/leases/x").take()
    assert tier.takes_writes


def test_an_object_over_a_limit_is_no_fault_of_the_tier(tier: Tier) -> None:
    for _ in range(FAULTS):
        with pytest.raises(RemoteError, match="more than 2 bytes"):
            tier.ask(lambda remote: remote.get("v7/a", 2, soon()))
    assert not tier.is_resting


@pytest.mark.parametrize("slow_blobs", [1, 2])
def test_blobs_that_come_too_late_are_a_fault_where_none_came(
    tier: Tier, slow_blobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = {sha256(data).hexdigest(): data for data in (b"one", b"two")}
    get, slow = FolderRemote.get, sorted(map(blob_name, blobs))[:slow_blobs]
    for digest, data in blobs.items():
        tier.remote.put(blob_name(digest), data, soon())

    def late(self: FolderRemote, name: str, limit: int, deadline: Deadline) -> bytes | None:
        if name in slow:
            time.sleep(deadline.left)
        return get(self, name, limit, deadline)

    monkeypatch.setattr(FolderRemote, "get", late)
    taken: list[bytes] = []
    with pytest.raises(Late):
        fetch_blobs(tier, dict.fromkeys(blobs, 3), taken.append, Deadline.after(1.2))
    assert (len(taken), tier.is_resting) == (2 - slow_blobs, slow_blobs == 2)
    assert not tier.damaged


@pytest.mark.parametrize("name", ["v7/a", "v7/none"])
def test_a_deadline_is_a_fault_unless_objects_came_until_then(tier: Tier, name: str) -> None:
    for _ in range(FAULTS):
        with pytest.raises(Late):
            tier.ask(lambda remote: (remote.get(name, 100, soon()), remote.get(name, 100, Deadline.after(0))))
    assert tier.is_resting == (name == "v7/none")
