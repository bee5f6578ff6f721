"""A Redis server that has a password, is full, is a copy of another, or is not there at the moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.remote.engines.protocol import RemoteError
from gearcache.cache.remote.engines.redis_server import RedisRemote
from tests.cache.remote.real_engines import redis_server, soon
from tests.support.forks import run_in_fork

MOST = 1 << 22


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with redis_server() as made:
        yield made


@pytest.fixture
def other(port: int) -> Iterator[Any]:
    """A client of somebody else."""
    import redis

    with redis.Redis(port=port) as client:
        yield client


@pytest.fixture
def remote(port: int, other: Any) -> RedisRemote:
    other.flushall()
    return RedisRemote(f"redis://127.0.0.1:{port}")


def test_a_password_and_a_user_are_sent_and_never_told(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("user default off\nuser team on >p%40ss:w/rd ~gearcache* +@all\n")
    with redis_server("--aclfile", str(tmp_path / "users")) as port:
        remote = RedisRemote(f"redis://team:p%2540ss%3Aw%2Frd@127.0.0.1:{port}/0")
        assert remote.put("v7/a", b"data", soon())
        assert remote.get("v7/a", MOST, soon()) == b"data"
        assert remote.names("v7/", 10, soon()) == ["v7/a"]
        assert remote.label == f"redis://127.0.0.1:{port}/0"
        for user in ("team:wrong-secret@", ":wrong-secret@", "wrong-secret:x@", ""):
            with pytest.raises(RemoteError, match="Authentication") as caught:
                RedisRemote(f"redis://{user}127.0.0.1:{port}/0").get("v7/a", MOST, soon())
            assert "secret" not in f"{caught.value} {caught.value.label}"


def test_a_full_server_is_an_error_and_still_read() -> None:
    with redis_server("--maxmemory", "4mb", "--maxmemory-policy", "noeviction") as port:
        remote = RedisRemote(f"redis://127.0.0.1:{port}")
        assert remote.put("v7/first", b"data", soon())
        puts = (remote.put(f"v7/{count}", bytes(1 << 20), soon()) for count in range(8))
        with pytest.raises(RemoteError, match="maxmemory"):
            list(puts)
        assert remote.get("v7/first", MOST, soon()) == b"data"
        assert "v7/first" in remote.names("v7/", 10, soon())
        assert all(remote.get(name, MOST, soon()) for name in remote.names("v7/", 10, soon()))


def test_a_part_of_a_cluster_is_an_error() -> None:
    with redis_server("--cluster-enabled", "yes") as port:
        with pytest.raises(RemoteError, match="cluster mode"):
            RedisRemote(f"redis://127.0.0.1:{port}/3").get("v7/a", MOST, soon())
        with pytest.raises(RemoteError, match=r"(?i)hash ?slot"):
            RedisRemote(f"redis://127.0.0.1:{port}").put("v7/a", b"data", soon())


def test_connections_that_the_server_has_closed_are_made_anew(remote: RedisRemote, other: Any) -> None:
    remote.put("v7/a", b"data", soon())
    other.client_kill_filter(_type="normal", skipme=True)
    assert remote.get("v7/a", MOST, soon()) == b"data"


def test_a_late_answer_is_none_to_the_next_question(remote: RedisRemote, other: Any) -> None:
    for name in "abc":
        remote.put(f"v7/{name}", name.encode() * 1000, soon())
    other.client_pause(600)
    begin = time.monotonic()
    with pytest.raises(RemoteError, match=r"did not answer within 0\.2 s"):
        remote.get("v7/a", MOST, soon(0.2))
    assert time.monotonic() - begin < 1
    for name in "bcab":
        assert remote.get(f"v7/{name}", MOST, soon()) == name.encode() * 1000


def test_a_forked_child_has_connections_of_its_own(remote: RedisRemote) -> None:
    remote.put("v7/a", b"data", soon())

    def ask() -> None:
        assert remote.get("v7/a", MOST, soon()) == b"data"
        assert remote.put("v7/b", b"child", soon())

    assert run_in_fork(ask) == 0
    assert remote.get("v7/b", MOST, soon()) == b"child"


def test_what_others_keep_in_the_database_is_none_of_ours(remote: RedisRemote, other: Any) -> None:
    remote.put("v7/x/a", b"data", soon())
    other.rpush("gearcache:v7/x/list", "a", "b")
    other.mset({b"gearcache:v7/x/\xff\xfe": b"", "gearcache:v7/x/../y": b"", "gearcache:v7/x/": b""})
    other.zadd("gearcache-names", {b"v7/x/\xff\xfe": 0, "v7/x/../y": 0, "v7/x/": 0, "v7/x/list": 0, "v7/x\x00": 0})
    with pytest.raises(RemoteError, match="WRONGTYPE"):
        remote.get("v7/x/list", MOST, soon())
    assert remote.names("v7/x/", 10, soon()) == ["v7/x/a", "v7/x/list"]


def test_names_of_objects_that_the_server_has_dropped_go_with_them(remote: RedisRemote, other: Any) -> None:
    for name in "abc":
        remote.put(f"v7/{name}", b"data", soon())
    other.delete("gearcache:v7/a", "gearcache:v7/b")
    assert remote.names("v7/", 10, soon()) == ["v7/c"]
    assert other.zrange("gearcache-names", 0, -1) == [b"v7/c"]
    remote.put("v7/a", b"data", soon())
    assert remote.names("v7/", 10, soon()) == ["v7/a", "v7/c"]


def test_what_has_a_lifetime_is_dropped(remote: RedisRemote) -> None:
    assert remote.put("lease", b"one", soon(), create=True, lifetime=0.2)
    assert not remote.put("lease", b"two", soon(), create=True, lifetime=0.2)
    time.sleep(0.4)
    assert remote.put("lease", b"three", soon(), create=True, lifetime=0.2)
