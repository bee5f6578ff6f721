"""Entries that go to tiers and come from them: sent, joined, refused, tried again."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.packed.baked_folder import write_folder
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest
from gearcache.cache.remote.admin.holdings import MOST_FAULTS, holdings
from gearcache.cache.remote.admin.pull import Pull, Pulled
from gearcache.cache.remote.admin.push import Pushed, push_entries
from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.protocol import Deadline, RemoteError
from gearcache.cache.remote.names import EntryName, blob_name
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.urls import TierURL
from gearcache.cache.result import Hit
from gearcache.cache.store import DiskStore
from gearcache.errors import UnsignedEntry
from gearcache.readable.joined import MOST_VARIANTS, covers_manifests, joined
from tests.support.commands import DECODE
from tests.support.signing import Pair, signer
from tests.support.stored_gears import store_gears, texts, traces

DECODE_NAME = EntryName(DECODE.safe_label, DECODE.digest)
NO_KEYS = Trust.from_environment({})


@pytest.fixture
def share(tmp_path: Path) -> str:
    (tmp_path / "share").mkdir()
    return str(tmp_path / "share")


def tier(host: Path, share: str, *, unsigned: bool = True) -> Tier:
    return Tier(TierURL(f"folder:{share}", unsigned=unsigned), Layout(host))


def push(host: Path, target: Tier, trust: Trust = NO_KEYS) -> Pushed:
    return push_entries(target, Layout(host), (DECODE_NAME,), trust, covers_manifests)


def pull(host: Path, *sources: Tier) -> Pulled:
    pulling = Pull(Layout(host), NO_KEYS, joined)
    named = [(source, holdings(source, Deadline.after(10)).manifests.get(DECODE_NAME, [])) for source in sources]
    pulling.bring(DECODE_NAME, named)
    return pulling.outcome


def stored(host: Path) -> Manifest:
    """What a load finds, with all its blobs."""
    disk = DiskStore(Layout(host))
    found = disk.lookup(DECODE)
    assert isinstance(found, Hit), found
    for digest in found.manifest.blobs:
        disk.read_blob(digest)
    return found.manifest


def test_a_push_sends_what_is_lacking_and_nothing_twice(tmp_path: Path, share: str) -> None:
    store_gears(tmp_path / "a", DECODE, {"1": b"one", "2": b"two"})
    first = push(tmp_path / "a", tier(tmp_path / "a", share))
    assert (len(first.sent), first.blobs, first.failed) == (1, 2, {})
    second = push(tmp_path / "a", tier(tmp_path / "a", share))
    assert (second.sent, second.had, second.blobs, second.bytes) == ([], first.sent, 0, 0)
    # Another host compiled one of the gears, and another one: the manifests of both stay.
    store_gears(tmp_path / "b", DECODE, {"2": b"two", "3": b"three"})
    assert push(tmp_path / "b", tier(tmp_path / "b", share)).blobs == 1
    assert len(holdings(tier(tmp_path / "c", share), Deadline.after(10)).names) == 2
    # What others compiled as well is not sent.
    store_gears(tmp_path / "d", DECODE, {"2": b"the same, compiled anew"})
    assert len(push(tmp_path / "d", tier(tmp_path / "d", share)).had) == 1


class Unreadable(FolderRemote):
    """A share that answers lists alone."""

    objects_read = faults = 0

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        self.faults += 1
        raise RemoteError(self.label, "no answer")


def test_what_nobody_signed_is_not_sent_where_hosts_would_refuse_it(tmp_path: Path, share: str) -> None:
    store_gears(tmp_path / "a", DECODE, {"1": b"one"})
    target = tier(tmp_path / "a", share, unsigned=False)
    (reason,) = push(tmp_path / "a", target).failed.values()
    assert reason.startswith("nobody signed it")
    assert len(push(tmp_path / "a", target, Pair(tmp_path).signs).sent) == 1  # signed on its way
    signed_by = signer(tmp_path)
    store_gears(tmp_path / "b", DECODE, {"2": b"two"}, signer=signed_by)
    assert len(push(tmp_path / "b", target).sent) == 1  # signed by somebody else
    # This host refuses it; it is there all the same, and not sent again.
    assert len(push(tmp_path / "b", target).had) == 1


def test_what_this_host_does_not_load_for_its_hmac_is_neither_pushed_nor_packed(tmp_path: Path, share: str) -> None:
    trust, target = Trust(hmac=signer(tmp_path)), tier(tmp_path / "a", share)
    for name, signed_by in (("unsigned", None), ("of another key", signer(tmp_path, "other"))):
        store_gears(tmp_path / name, DECODE, {"1": b"one"}, signer=signed_by)
        (reason,) = push(tmp_path / name, target, trust).failed.values()
        assert "is not signed with the key of `GEARCACHE_HMAC_KEY_FILE`" in reason
        rows = Catalog(Layout(tmp_path / name)).entries()
        with pytest.raises(UnsignedEntry, match="this host does not load it either"):
            write_folder(Layout(tmp_path / name), rows, tmp_path / "packed", trust.own_signed)
    assert holdings(target, Deadline.after(10)).names == []
    store_gears(tmp_path / "a", DECODE, {"1": b"one"}, signer=trust.hmac)
    assert len(push(tmp_path / "a", target, trust).sent) == 1
    assert write_folder(Layout(tmp_path / "a"), Catalog(Layout(tmp_path / "a")).entries(), tmp_path / "p").blobs == 1


def test_a_pull_joins_what_hosts_stored_with_what_is_here(tmp_path: Path, share: str) -> None:
    store_gears(tmp_path / "a", DECODE, {"1": b"one", "2": b"two"}, created=1000.0)
    store_gears(tmp_path / "b", DECODE, {"2": b"two of b", "3": b"three"}, created=2000.0)
    store_gears(tmp_path / "c", DECODE, {"4": b"four"}, trace="other", created=500.0)
    for host in ("a", "b"):
        push(tmp_path / host, tier(tmp_path / host, share))
    found = pull(tmp_path / "c", tier(tmp_path / "c", share))
    assert (len(found.brought), found.failed, found.refused) == (1, {}, {})
    manifest = stored(tmp_path / "c")
    assert (set(texts(manifest)), set(traces(manifest))) == ({"1", "2", "3", "4"}, {"trace", "other"})
    assert (manifest.created, manifest.producer["variants"]) == (2000.0, 3)
    again = pull(tmp_path / "c", tier(tmp_path / "c", share))
    assert (again.brought, len(again.present), again.blobs) == ([], 1, 0)


def test_what_nobody_signed_is_refused_and_nothing_here_is_touched(tmp_path: Path, share: str) -> None:
    store_gears(tmp_path / "a", DECODE, {"1": b"one"})
    push(tmp_path / "a", tier(tmp_path / "a", share))
    ours = store_gears(tmp_path / "b", DECODE, {"2": b"two"})
    found = pull(tmp_path / "b", tier(tmp_path / "b", share, unsigned=False))
    assert (len(found.refused), found.brought) == (1, [])
    assert stored(tmp_path / "b") == ours
    found = pull(tmp_path / "c", tier(tmp_path / "c", share, unsigned=False))
    assert list(found.failed.values()) == ["none of its manifests may be used"]
    assert not Layout(tmp_path / "c").manifest(DECODE).exists()


def damage(share: str, blob: bytes) -> None:
    """Overwrite a blob of the share."""
    Path(share, blob_name(sha256(blob).hexdigest())).write_bytes(b"x" * len(blob))


def test_a_damaged_blob_is_told_and_the_other_gears_come(tmp_path: Path, share: str) -> None:
    for host, gears in (("a", {"1": b"one"}), ("b", {"2": b"two"})):
        store_gears(tmp_path / host, DECODE, gears)
        push(tmp_path / host, tier(tmp_path / host, share))
    damage(share, b"one")
    found = pull(tmp_path / "c", tier(tmp_path / "c", share))
    assert [reason[:9] for reason in found.failed.values()] == ["the blob "]
    assert texts(stored(tmp_path / "c")) == ["2"]


def test_a_blob_comes_from_the_next_tier_where_the_first_has_it_damaged(tmp_path: Path, share: str) -> None:
    store_gears(tmp_path / "a", DECODE, {"1": b"one", "2": b"two"})
    other = f"{share}-2"
    Path(other).mkdir()
    for path in (share, other):
        push(tmp_path / "a", tier(tmp_path / "a", path))
    damage(share, b"one")
    found = pull(tmp_path / "c", tier(tmp_path / "c", share), tier(tmp_path / "c", other))
    assert (len(found.brought), found.failed) == (1, {})
    assert texts(stored(tmp_path / "c")) == ["1", "2"]


def test_a_tier_that_fails_all_the_time_is_left_alone(tmp_path: Path, share: str) -> None:
    store_gears(tmp_path / "a", DECODE, {"1": b"one"})
    push(tmp_path / "a", tier(tmp_path / "a", share))
    source = tier(tmp_path / "b", share)
    source._remote = remote = Unreadable(share)  # type: ignore[assignment]
    pulling = Pull(Layout(tmp_path / "b"), NO_KEYS, joined)
    names = holdings(source, Deadline.after(10)).manifests[DECODE_NAME]
    for _ in range(5):
        pulling.bring(DECODE_NAME, [(source, names)])
    assert remote.faults == MOST_FAULTS
    assert "failed again and again" in next(iter(pulling.outcome.failed.values()))


def test_no_more_variants_come_than_an_entry_may_hold_and_a_host_with_many_crowds_out_no_other(
    tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_VARIANTS == 64
    monkeypatch.setattr("gearcache.readable.joined.MOST_VARIANTS", 6)
    for number in range(9):
        host = tmp_path / f"h{number}"
        store_gears(host, DECODE, {"1": b"%d" % number}, trace=f"trace{number}", created=100.0 + number)
        push(host, tier(host, share))
    many, other = tmp_path / "many", tmp_path / "other"
    store_gears(many, DECODE, {"0": b"zero"}, trace="own", created=1.0)
    pull(many, tier(many, share))
    assert traces(stored(many)) == ["own", *(f"trace{number}" for number in range(4, 9))]
    other.mkdir()
    push(many, tier(many, str(other)))
    store_gears(tmp_path / "old", DECODE, {"1": b"wanted"}, trace="wanted", created=1.0)
    push(tmp_path / "old", tier(tmp_path / "old", str(other)))
    pulled = pull(tmp_path / "z", tier(tmp_path / "z", str(other)))
    found = traces(stored(tmp_path / "z"))
    assert (len(found), "wanted" in found) == (6, True)
    assert list(pulled.traces.values()) == [6]
