"""Hosts that share tiers: what one compiled, the others fetch; what is wrong with a tier costs time, and no result."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import msgpack
from torch import Tensor

import gearcache
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest, decode_manifest, encode_manifest
from gearcache.cache.remote import breaker, fetch, lease, tier, urls
from gearcache.cache.remote.engines import retrying
from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.protocol import Deadline, RemoteError
from gearcache.cache.remote.outbox import outbox
from gearcache.cache.remote.tier_counts import tier_counts
from gearcache.cache.remote.urls import parse_urls
from gearcache.errors import CacheError, OptionError
from gearcache.serving.fleet import compile_turn as turn
from gearcache.serving.fleet import remote_entry, tier_faults
from tests.support.commands import run_json
from tests.support.relaunch import run_python

GEARS = {"x": {0: [2, 4]}}


class Net(torch.nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.factor = factor

    def run(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x.float())) * self.factor + 1.0

    def other(self, x: Tensor) -> Tensor:
        return self.linear(x) - self.factor


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test is as a host that was just started."""
    monkeypatch.setattr(tier_faults, "_warned", set())
    monkeypatch.setattr(tier, "_tiers", {})
    monkeypatch.setattr(turn, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(turn, "_LOOK_SECONDS", 0.2)
    for module, name in ((fetch, "_AGAIN_SECONDS"), (retrying, "PAUSES")):
        monkeypatch.setattr(module, name, (0.01, 0.01))
    monkeypatch.setattr(lease, "_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(remote_entry, "_SEND_PAUSES", ())
    yield
    assert outbox().flush(30) == 0


@pytest.fixture
def share(tmp_path: Path) -> str:
    """A tier that takes unsigned entries."""
    (tmp_path / "share").mkdir()
    return f"folder:{tmp_path / 'share'}?unsigned=1"


@pytest.fixture(scope="module")
def first_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("first")
    (root / "share").mkdir()
    Host(root / "a", f"folder:{root / 'share'}?unsigned=1").call()
    return root


@pytest.fixture
def filled(first_host: Path, tmp_path: Path, share: str) -> str:
    """A tier that has what a host with the folder "a" compiled."""
    shutil.copytree(first_host, tmp_path, dirs_exist_ok=True)
    return share


class Host:
    """A process of a host with a cache of its own: a fresh module with a fresh cached method."""

    def __init__(
        self, root: Path, remotes: str | list[str] | None, *, factor: float = 2.0, method: str = "run", **options: Any
    ) -> None:
        self.net = Net(factor)
        config = gearcache.CompilerConfig(backend="eager", **options)
        self.original = getattr(self.net, method)
        self.cached = gearcache.cache_compile(
            self.original, config=config, gears=GEARS, cache_dir=root, remotes=remotes
        )

    def call(self, size: int = 4, dtype: torch.dtype = torch.float32) -> Host:
        """Call with a new tensor, and compare with what the method itself gives; sends what was compiled."""
        x = torch.randn(size, 4).to(dtype)
        with torch.no_grad():
            torch.testing.assert_close(self.cached(x), self.original(x), rtol=0, atol=0)
        assert outbox().flush(30) == 0
        return self

    @property
    def compiles(self) -> int:
        return self.cached.stats.to_dict()["compiles"]  # type: ignore[no-any-return]


def objects(share: str, what: str) -> list[Path]:
    """Return the files of a folder as a tier: "blobs", "entries" or "leases"."""
    folder = Path(share.removeprefix("folder:").partition("?")[0]) / "v7" / what
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


class Adapters(Net):
    """A model whose method reaches one of its adapters."""

    def __init__(self, *names: str, width: int) -> None:
        super().__init__()
        self.adapters = torch.nn.ModuleDict({name: torch.nn.Linear(4, width) for name in names})
        self.active = "own"

    def run(self, x: Tensor) -> Tensor:
        return self.adapters[self.active](self.linear(x))


def of_tenant(root: Path, remotes: str, *names: str, active: str = "own", width: int = 4) -> Any:
    """Call the method of a model with these adapters on a host of its own; returns the cached method."""
    model = Adapters(*names, width=width)
    model.active = active
    config = gearcache.CompilerConfig(backend="eager")
    cached = gearcache.cache_compile(model.run, config=config, gears=GEARS, cache_dir=root, remotes=remotes)
    x = torch.randn(4, 4)
    with torch.no_grad():
        assert torch.equal(cached(x), model.run(x))
    assert outbox().flush(30) == 0
    return cached


def test_what_one_host_compiled_another_fetches(tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Host(tmp_path / "a", share).call().compiles == 2
    second = Host(tmp_path / "b", share).call().call(2)
    assert (second.compiles, second.cached.stats.to_dict()["traces"]) == (0, 0)
    for name, counted in (("a", {"absent": 1}), ("b", {})):  # what a tier has served is no miss
        found = run_json("stats", "--cache-dir", str(tmp_path / name))
        assert (found["hits"], found["misses_by_reason"]) == (1 - len(counted), counted)
    # It is an entry of that host like any other: no tier is asked for it.
    monkeypatch.setattr(remote_entry, "RemoteEntry", None)
    assert Host(tmp_path / "b", share).call().call(2).compiles == 0


def test_what_another_tenants_host_compiled_serves_where_the_method_reaches_the_same(
    tmp_path: Path, share: str
) -> None:
    assert of_tenant(tmp_path / "a", share, "own", "b").stats.traces == 1
    renamed = of_tenant(tmp_path / "b", share, "own", "c", "d")
    assert (renamed.stats.traces, renamed.stats.hits) == (0, 1)
    assert ", of a module that differs only where the method does not reach: " in renamed.explain()
    assert of_tenant(tmp_path / "b", "", "own", "c", "d").stats.traces == 0, "it is an entry of that host"
    assert of_tenant(tmp_path / "c", share, "own", "c", active="c").stats.traces == 1, "another one is active"
    assert of_tenant(tmp_path / "d", share, "own", "f", width=5).stats.traces == 1, "it reaches other weights"
    assert of_tenant(tmp_path / "e", share, "e", "own").stats.traces == 0


def test_tiers_are_asked_in_their_order_and_all_get_what_was_compiled(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = (f"folder:{tmp_path / name}?unsigned=1" for name in ("one", "two"))
    Host(tmp_path / "a", [first, second]).call()
    assert len(objects(first, "entries")) == len(objects(second, "entries")) == 1
    shutil.rmtree(tmp_path / "one")
    assert Host(tmp_path / "b", f"{first} {second}").call().compiles == 0


def test_nothing_is_stored_in_a_read_only_tier(tmp_path: Path, filled: str) -> None:
    before = len(list((tmp_path / "share").rglob("*")))
    assert Host(tmp_path / "b", f"{filled}&read_only=1", factor=3.0).call().compiles == 2
    assert len(list((tmp_path / "share").rglob("*"))) == before
    assert Host(tmp_path / "b", f"{filled}&read_only=1").call().compiles == 0


def test_variants_of_all_hosts_are_found_up_to_the_limit_of_an_entry(tmp_path: Path, filled: str) -> None:
    """Two hosts that do not see each other's entries; a third has both."""
    (tmp_path / "apart").mkdir()
    Host(tmp_path / "b", f"folder:{tmp_path / 'apart'}?unsigned=1").call(dtype=torch.float64)
    shutil.copytree(tmp_path / "apart", tmp_path / "share", dirs_exist_ok=True)
    assert len(objects(filled, "entries")) == 2
    third = Host(tmp_path / "c", filled).call(dtype=torch.float32).call(dtype=torch.float64)
    assert third.compiles == 0
    assert Host(tmp_path / "d", filled, max_variants=1).call(dtype=torch.float64).compiles == 0
    (path,) = Layout(tmp_path / "d").entries()
    assert len(decode_manifest(path.read_bytes(), path).payload["variants"]) == 1  # type: ignore[arg-type]


def test_an_entry_whose_evidence_does_not_hold_is_not_fetched(tmp_path: Path, filled: str) -> None:
    assert Host(tmp_path / "b", filled, factor=3.0).call().compiles == 2
    assert Host(tmp_path / "c", filled, factor=3.0).call().compiles == 0
    assert Host(tmp_path / "d", filled, factor=2.0).call().compiles == 0


def test_a_damaged_blob_is_compiled_again_and_replaced(tmp_path: Path, filled: str) -> None:
    for blob in objects(filled, "blobs"):
        data = blob.read_bytes()
        blob.unlink()
        blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    second = Host(tmp_path / "b", filled).call()
    assert second.compiles == 2
    assert "sha256" in second.cached.explain()
    assert Host(tmp_path / "c", filled).call().compiles == 0


def test_a_blob_that_was_damaged_once_is_fetched_when_it_is_whole_again(tmp_path: Path, filled: str) -> None:
    blobs = {blob: blob.read_bytes() for blob in objects(filled, "blobs")}
    for blob in blobs:
        blob.unlink()
    assert Host(tmp_path / "b", f"{filled}&read_only=1").call().compiles == 2
    for blob, data in blobs.items():
        blob.write_bytes(data)
    shutil.rmtree(tmp_path / "b" / "v7" / "entries")
    shutil.rmtree(tmp_path / "b" / "v7" / "blobs")
    assert Host(tmp_path / "b", f"{filled}&read_only=1").call().compiles == 0, "in the same process"


def slow_blobs(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int, Deadline], float]) -> None:
    """Let a share take some seconds for each blob, which may depend on how many it gave before."""
    get, numbers = FolderRemote.get, itertools.count()

    def slow(self: FolderRemote, name: str, limit: int, deadline: Deadline) -> bytes | None:
        if "/blobs/" in name:
            time.sleep(seconds(next(numbers), deadline))
            deadline.check(self.label)
        return get(self, name, limit, deadline)

    monkeypatch.setattr(FolderRemote, "get", slow)


def test_a_fetch_has_the_time_that_its_bytes_need(tmp_path: Path, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "_BYTES_PER_SECOND", 1, raising=False)  # each byte is large
    slow_blobs(monkeypatch, lambda *_: 1.5)
    assert Host(tmp_path / "b", f"{filled}&budget=1").call().compiles == 0


def test_what_the_call_needs_is_kept_where_the_rest_comes_too_late(
    tmp_path: Path, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apart").mkdir()
    apart = f"folder:{tmp_path / 'apart'}?unsigned=1"
    Host(tmp_path / "b", apart).call(dtype=torch.float64)
    (path,), (blob,) = objects(apart, "entries"), objects(apart, "blobs")
    other = sha256(b"another").hexdigest()  # graphs of this backend are equal
    body = msgpack.encode(decode_manifest(path.read_bytes(), path)).replace(blob.name.encode(), other.encode())
    data = encode_manifest(msgpack.decode(body, type=Manifest))
    place = (tmp_path / "share" / path.relative_to(tmp_path / "apart")).parent
    (place / f"{sha256(data).hexdigest()}-{path.name.partition('-')[2]}").write_bytes(data)
    slow_blobs(monkeypatch, lambda number, deadline: deadline.left if number else 0.0)
    host = Host(tmp_path / "c", f"{filled}&budget=2").call()
    assert host.compiles == 0
    (path,) = Layout(tmp_path / "c").entries()
    assert len(decode_manifest(path.read_bytes(), path).payload["variants"]) == 1  # type: ignore[arg-type]


def test_a_search_for_siblings_that_takes_too_long_leaves_the_lease_and_is_not_repeated(
    tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_tenant(tmp_path / "a", share, "own", "b")
    names, searches = FolderRemote.names, list[str]()

    def slow(self: FolderRemote, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        if "/entries/" in prefix and prefix.count("/") == 3:  # of a whole method
            searches.append(prefix)
            time.sleep(deadline.left)
            deadline.check(self.label)
        return names(self, prefix, limit, deadline)

    monkeypatch.setattr(FolderRemote, "names", slow)
    cached = of_tenant(tmp_path / "b", f"{share}&budget=1.2", "own", "c")
    assert cached.stats.traces == 1
    assert cached.stats.to_dict()["lease_seconds"] > 0, "it compiled without a lease"
    searched = len(searches)
    assert searched > 0
    with torch.no_grad():
        cached(torch.randn(4, 4).t())  # of other strides
    assert outbox().flush(30) == 0
    assert (cached.stats.traces, len(searches)) == (2, searched)


def test_a_manifest_in_the_place_of_another_key_serves_no_call(tmp_path: Path, filled: str) -> None:
    share, both = filled, [{}, {"mode": "default"}]
    Host(tmp_path / "a", share, mode="default").call()
    first, other = objects(share, "entries")
    first.unlink()
    (first.parent / other.name).write_bytes(other.read_bytes())
    hosts = [Host(tmp_path / "b", share, **options).call() for options in both]
    assert sorted(host.compiles for host in hosts) == [0, 2]
    assert any("belongs to the entry" in host.cached.explain() for host in hosts if host.compiles)


def test_an_unsigned_entry_is_refused_unless_the_user_says_so(
    tmp_path: Path, filled: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "gearcache"):
        careful = filled.partition("?")[0]
        assert Host(tmp_path / "b", careful).call().compiles == 2
    warnings = [record.getMessage() for record in caplog.records if "sign" in record.getMessage()]
    assert len(warnings) == 2
    assert "is not signed" in warnings[0]
    assert "nothing is sent there" in warnings[1]
    # Nobody waits for what is refused then.
    assert not objects(filled, "leases")
    assert len(objects(filled, "entries")) == 1


def test_a_host_that_cannot_write_fetches_into_memory(tmp_path: Path, filled: str) -> None:
    (tmp_path / "file").write_text("")
    assert Host(tmp_path / "file" / "cache", filled).call().compiles == 0


def test_a_damaged_local_blob_comes_from_a_tier(tmp_path: Path, filled: str) -> None:
    for blob in (tmp_path / "a" / "v7" / "blobs").glob("*/*"):
        blob.write_bytes(b"damaged")
    assert Host(tmp_path / "a", filled).call().compiles == 0
    assert Host(tmp_path / "a", "").call().compiles == 0


def test_a_prewarm_sends_before_it_ends(tmp_path: Path, share: str) -> None:
    def build() -> None:
        Host(tmp_path / "unused", share).cached.warm(torch.empty(4, 4, device="meta"))

    report = gearcache.prewarm(build, cache_dir=tmp_path / "a")
    assert (report.compiled, [entry.failed for entry in report.entries]) == (2, [{}])
    assert len(objects(share, "entries")) == 1
    # What is here and not there is sent as well.
    shutil.rmtree(tmp_path / "share" / "v7")
    assert gearcache.prewarm(build, cache_dir=tmp_path / "a").compiled == 0
    assert Host(tmp_path / "b", share).call().compiles == 0


def test_a_prewarm_says_what_could_not_be_sent(tmp_path: Path, share: str) -> None:
    (tmp_path / "file").write_text("")

    def build() -> None:
        remotes = [f"folder:{tmp_path / 'file' / 'share'}?unsigned=1", share.partition("?")[0]]
        Host(tmp_path / "unused", remotes).cached.warm(torch.empty(4, 4, device="meta"))

    report = gearcache.prewarm(build, cache_dir=tmp_path / "a")
    assert report.compiled == 2
    first, second = report.entries[0].failed.values()
    assert f"there is no folder `{tmp_path / 'file' / 'share'}`" in first
    assert "nothing is sent there" in second


def test_in_the_background_it_is_fetched_too(tmp_path: Path, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearcache.serving.miss.forked_build._NICE", 0)  # or tests beside it hold it up
    deadline = time.monotonic() + 60
    second, third = (Host(tmp_path / "b", filled, on_miss="background", factor=factor) for factor in (2.0, 7.0))
    for host in (second, third):
        while not host.cached.stats.to_dict()["loads"]:
            host.call()
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert second.compiles == 0
    assert outbox().flush(30) == 0
    assert len(objects(filled, "entries")) == 2
    assert not objects(filled, "leases")


@pytest.mark.parametrize(
    ("variable", "value"), [("GEARCACHE_TRUSTED_KEYS", "/no/such/keys"), ("GEARCACHE_REMOTES", "s4://bucket")]
)
def test_a_variable_that_is_wrong_costs_one_warning_and_no_call(
    tmp_path: Path,
    share: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    value: str,
) -> None:
    monkeypatch.setenv("GEARCACHE_REMOTES", share)
    monkeypatch.setenv(variable, value)
    assert Host(tmp_path / "a", None).call(2).call(4).compiles == 2
    (told,) = [record.getMessage() for record in caplog.records if value in record.getMessage()]
    assert variable in told
    with pytest.raises(OptionError, match=variable):
        Host(tmp_path / "b", None, strict=True).call()


class Faulty(FolderRemote):
    """A share that hangs, denies writes or fails otherwise, and counts how often it was asked."""

    asked = 0

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(path)
        self._fault = fault

    def _fail(self, deadline: Deadline) -> None:
        type(self).asked += 1
        if self._fault == "hangs":
            time.sleep(deadline.left)
        if self._fault != "denies writes":
            raise RemoteError(self.label, f"it {self._fault}")

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        self._fail(deadline)
        return super().get(name, limit, deadline)

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        self._fail(deadline)
        return super().names(prefix, limit, deadline)

    def put(self, name: str, data: bytes, deadline: Deadline, **how: Any) -> bool:
        raise RemoteError(self.label, "permission denied")


def faulty(share: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the folder of a tier have a fault; return its address, with a budget of a fifth of a second."""
    monkeypatch.setattr(Faulty, "asked", 0)
    path = share.removeprefix("folder:").partition("?")[0]
    monkeypatch.setitem(urls._ENGINES, "folder", lambda url: Faulty(path, fault))
    return f"{share}&budget=0.2"


@pytest.mark.parametrize("fault", ["hangs", "denies writes"])
def test_a_tier_that_fails_costs_its_budget_once_and_one_warning(
    tmp_path: Path, share: str, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Host(tmp_path / "plain", "").call()  # what a compile imports
    url = faulty(share, fault, monkeypatch)
    with caplog.at_level(logging.WARNING, "gearcache"):
        begin = time.monotonic()
        Host(tmp_path / "b", url).call()
        assert time.monotonic() - begin < 8
        for number in range(3 if fault == "hangs" else 1):
            Host(tmp_path / "b", url, factor=10.0 + number).call()
        if fault == "hangs":
            asked = Faulty.asked
            Host(tmp_path / "b", url, factor=20.0).call()
            assert Faulty.asked == asked, "a tier that failed often is left alone"
    assert len([record for record in caplog.records if "tier" in record.getMessage()]) == 1


def test_an_upload_that_a_tier_does_not_take_is_tried_again_under_the_lease(
    tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, is_broken = FolderRemote.put, threading.Event()
    is_broken.set()

    def broken(self: FolderRemote, name: str, data: bytes, deadline: Deadline, **how: Any) -> bool:
        if is_broken.is_set() and not ("/leases/" in name or "/probes/" in name):
            raise RemoteError(self.label, "it is full")
        return put(self, name, data, deadline, **how)

    monkeypatch.setattr(FolderRemote, "put", broken)
    monkeypatch.setattr(breaker, "REST_SECONDS", 0.3)
    monkeypatch.setattr(remote_entry, "_SEND_PAUSES", (0.2,) * 20, raising=False)
    with torch.no_grad():
        Host(tmp_path / "a", share).cached(torch.ones(4, 4))
    time.sleep(0.5)
    assert outbox().flush(0.0) == 1
    assert (len(objects(share, "leases")), objects(share, "entries")) == (1, [])
    is_broken.clear()
    end = time.monotonic() + 20
    while outbox().flush(1.0) and time.monotonic() < end:
        time.sleep(0.05)
    assert (objects(share, "leases"), len(objects(share, "entries"))) == ([], 1)
    assert Host(tmp_path / "b", share).call().compiles == 0


def test_a_fault_is_an_error_where_the_user_wants_errors(
    tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CacheError, match="it refuses"):
        Host(tmp_path / "a", faulty(share, "refuses", monkeypatch), strict=True).call()


def _lease(share: str, **changes: Any) -> lease.Lease:
    """A lease that somebody else holds, for whatever work."""
    path = share.removeprefix("folder:").partition("?")[0]
    (url,) = parse_urls(share, "test")
    return lease.Lease(tier.Tier(url, Layout(Path(path).parent / "local")), "v7/leases/x", **changes)


@pytest.fixture
def one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """All work has one lease."""
    monkeypatch.setattr(turn, "lease_name", lambda *_: "v7/leases/x")


@pytest.mark.usefixtures("one_lease")
def test_a_host_waits_for_who_holds_the_lease_and_compiles_when_that_gives_up(tmp_path: Path, share: str) -> None:
    held = _lease(share)
    assert held.take()
    threading.Timer(0.5, held.release).start()
    begin = time.monotonic()
    host = Host(tmp_path / "a", share).call()
    assert host.compiles == 2
    assert 0.5 <= time.monotonic() - begin < 20
    assert "waiting for process" in host.cached.explain()
    assert not objects(share, "leases")


@pytest.mark.usefixtures("one_lease")
def test_nobody_waits_for_a_process_that_is_gone(tmp_path: Path, share: str) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    left = lease.Holder("0" * 16, "host", child, 0, time.time(), lease.process_space()).encoded()
    FolderRemote(share.removeprefix("folder:").partition("?")[0]).put("v7/leases/x", left, Deadline.after(5))
    begin = time.monotonic()
    Host(tmp_path / "a", share).call()
    assert time.monotonic() - begin < 20


@pytest.mark.usefixtures("one_lease")
def test_a_holder_that_shows_no_beat_is_taken_over(tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = _lease(share, beat=1000.0)
    assert dead.take()
    monkeypatch.setattr(turn, "Lease", lambda *arguments, **named: lease.Lease(*arguments, life=0.3, **named))
    begin = time.monotonic()
    assert Host(tmp_path / "a", share).call().compiles == 2
    assert 0.3 <= time.monotonic() - begin < 20
    dead.release()


def test_a_process_does_not_wait_for_its_own_upload(
    tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "_LOOK_SECONDS", 30.0)
    put = FolderRemote.put

    def slow(self: FolderRemote, name: str, data: bytes, deadline: Deadline, **how: Any) -> bool:
        if "/entries/" in name:
            time.sleep(0.5)
        return put(self, name, data, deadline, **how)

    monkeypatch.setattr(FolderRemote, "put", slow)
    host = Host(tmp_path / "a", share)
    begin = time.monotonic()
    with torch.no_grad():
        for factor in range(2):  # one work, as the number is known only after the trace
            host.net.factor = float(factor)
            assert torch.equal(host.cached(torch.ones(4, 4)), host.original(torch.ones(4, 4)))
    assert time.monotonic() - begin < 20
    assert outbox().flush(30) == 0
    assert host.cached.stats.to_dict()["lease_seconds"] < 0.5
    assert not objects(share, "leases")
    assert Host(tmp_path / "b", share, factor=1.0).call().compiles == 0


def test_counts_and_events_tell_what_a_tier_did(tmp_path: Path, share: str) -> None:
    events: list[gearcache.Event] = []
    remove = gearcache.add_listener(events.append)
    try:
        for name in ("a", "b"):
            Host(tmp_path / name, share).call()
    finally:
        remove()
    (counts,) = tier_counts(Layout(tmp_path / "a"))
    assert (counts["misses"], counts["hits"], counts["uploads"], counts["faults"]) == (1, 0, 1, 0)
    assert counts["bytes_uploaded"] > 100
    (counts,) = tier_counts(Layout(tmp_path / "b"))
    assert (counts["misses"], counts["hits"], counts["uploads"]) == (0, 1, 0)
    assert counts["bytes_fetched"] > 100
    label = share.partition("?")[0]
    assert counts["tier"] == label
    told = [event for event in events if event.tier]
    # Uploads are those of another thread, which may be the first to tell.
    assert sorted((event.kind, event.tier) for event in told) == [("fetch", label), ("lease", label), ("upload", label)]
    assert all(event.seconds > 0 for event in told)


LAST_WORDS = """
import sys, time, torch, gearcache
from multiprocessing import get_context
from gearcache.cache.remote import outbox
from gearcache.cache.remote.engines.folder import FolderRemote

def slow(self, name, data, deadline, write=FolderRemote.put, **how):
    time.sleep(0.1 if sys.argv[3] == "slow" else 60 if "blobs" in name else 0)
    return write(self, name, data, deadline, **how)

FolderRemote.put = slow
outbox.EXIT_SECONDS = 10.0 if sys.argv[3] == "slow" else 0.5
config = gearcache.CompilerConfig(backend="eager")
cached = gearcache.cache_compile(
    torch.nn.Linear(4, 4).forward, config=config, cache_dir=sys.argv[1], remotes=f"folder:{sys.argv[2]}?unsigned=1"
)

def call():
    with torch.no_grad():
        cached(torch.randn(2, 4))

if sys.argv[4] == "child":
    child = get_context("fork").Process(target=call)
    child.start()
    child.join()
else:
    call()
print(time.time(), flush=True)
"""


@pytest.mark.parametrize(("tier_is", "process"), [("slow", "program"), ("slow", "child"), ("hanging", "program")])
def test_what_was_compiled_last_is_sent_before_a_process_ends_which_no_tier_holds_up(
    tmp_path: Path, share: str, tier_is: str, process: str
) -> None:
    folder = share.removeprefix("folder:").partition("?")[0]
    ended = run_python(LAST_WORDS, str(tmp_path / "a"), folder, tier_is, process, compiles=True)
    if tier_is == "slow":
        assert len(objects(share, "entries")) == 1
        assert not objects(share, "leases")
    else:
        assert time.time() - ended < 8
