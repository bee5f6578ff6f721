"""Broken and hostile answers: an error within the deadline that names the tier, never other bytes, and nothing held."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gearcache.cache.remote.engines import redis_server, retrying
from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.protocol import Remote, RemoteError
from gearcache.cache.remote.engines.redis_server import RedisRemote
from gearcache.cache.remote.engines.web import WebRemote
from tests.cache.remote.hostile import Answer, Hostile, for_ever, hostile, http_answer, slowly
from tests.cache.remote.real_engines import bucket_options, soon

MOST = 5000
BODY = b"x" * 1000
OBJECT = {"Last_Modified": "Mon, 23 Nov 2026 10:00:00 GMT", "ETag": '"tag"'}
CHUNKED = {"Transfer_Encoding": "chunked", **OBJECT}
#: What is no answer to `get`, `size` or `names`.
STATUS = {
    "500": http_answer(b"<Error>test-secret</Error>" * 1000, "500 Internal Server Error"),
    "503": http_answer(b"<Error><Code>SlowDown</Code></Error>", "503 Slow Down"),
    "403": http_answer(b"<Error><Code>AccessDenied</Code></Error>", "403 Forbidden"),
    "moved": http_answer(b"", "302 Found", Location="/other"),
    "a long reason": http_answer(b"", f"500 {'no ' * 10_000}"),
}
#: What is no answer to `get`.
BODIES = {
    "cut off": http_answer(BODY, Content_Length="2000", **OBJECT),
    "of no length": http_answer(BODY, No_Length="1", **OBJECT),
    "cut in a chunk": http_answer(b"64\r\n" + b"x" * 100 + b"\r\n64\r\nxx", **CHUNKED),
    "chunks for ever": [],
    "compressed": http_answer(BODY, Content_Encoding="gzip", **OBJECT),
    "too long": http_answer(bytes(MOST + 1), **OBJECT),
    "slow": [],
}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "PAUSES", (0.0, 0.0))


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with hostile() as made:
        yield made


@pytest.fixture(params=["web", "bucket"])
def remote(request: pytest.FixtureRequest, server: Hostile) -> Remote:
    url = f"http://127.0.0.1:{server.port}"
    server.requests.clear()
    return WebRemote(url) if request.param == "web" else ObjectRemote("s3://team/gears", bucket_options(url))


@pytest.mark.parametrize("kind", STATUS)
def test_an_answer_that_is_none_is_an_error_that_names_the_tier(remote: Remote, server: Hostile, kind: str) -> None:
    server.answer = STATUS[kind]
    # A website that forbids a list has none: tested below.
    has_list = kind != "403" or not isinstance(remote, WebRemote)
    for ask in (
        lambda: remote.get("v7/a", MOST, soon()),
        *([lambda: remote.names("v7/a/", 5, soon())] if has_list else []),
        lambda: remote.put("v7/a", BODY, soon(), create=True),
        lambda: remote.delete("v7/a", soon()),
    ):
        begin = time.monotonic()
        with pytest.raises(RemoteError) as caught:
            ask()
        assert time.monotonic() - begin < 3
        assert str(caught.value).startswith(f"tier {remote.label}: ")
        assert len(caught.value.problem) < 510
        assert str(caught.value).isprintable()
        assert "test-secret" not in str(caught.value)


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_may_not_be_whole_is_an_error(remote: Remote, server: Hostile, kind: str) -> None:
    answer: Answer = BODIES[kind]
    if kind == "chunks for ever":
        answer = for_ever(http_answer(**CHUNKED), b"5\r\nabcde\r\n")
    if kind == "slow":
        answer = slowly(http_answer(BODY, **OBJECT))
    server.answer = answer
    begin = time.monotonic()
    with pytest.raises(RemoteError):
        remote.get("v7/a", MOST, soon(0.5))
    assert time.monotonic() - begin < 1.5
    server.answer = http_answer(BODY, **OBJECT)
    assert remote.get("v7/a", MOST, soon()) == BODY


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (b"a\nb\r\nc d\n\n\n", ["a", "b", "c d"]),
        (b"../x\n..\n.\n./a\na/../b\n/etc/passwd\n//a\na//b\na/\n.hidden\nb\n", ["b"]),
        (b"a\0b\n\0\na\tb\nb\n\x1b[31m\n", ["b"]),
        ("\N{LATIN SMALL LETTER U WITH DIAERESIS}\nb\n".encode() + b"\xff\xfe\n", ["b", "ü"]),
        (b"".join(b"%05d\n" % number for number in range(20_000)), [f"{number:05d}" for number in range(5)]),
    ],
    ids=["plain", "elsewhere", "signs", "unicode", "many"],
)
def test_names_of_an_index_are_those_that_can_be_names(server: Hostile, lines: bytes, found: list[str]) -> None:
    server.answer = http_answer(lines)
    remote = WebRemote(f"http://127.0.0.1:{server.port}")
    assert remote.names("v7/k/", 5, soon()) == [f"v7/k/{name}" for name in found]


def test_proxies_of_the_environment_are_not_asked_by_a_web_server(
    server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://user:proxy-secret@127.0.0.1:1")
    server.answer = http_answer(BODY, **OBJECT)
    assert WebRemote(f"http://127.0.0.1:{server.port}").get("v7/a", MOST, soon()) == BODY


def _list_answer(*names: str) -> Answer:
    contents = "".join(
        f"<Contents><Key>{name}</Key><LastModified>2026-11-23T10:00:00Z</LastModified><ETag>x</ETag><Size>1</Size>"
        f"</Contents>"
        for name in names
    )
    return http_answer(
        f'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>'.encode()
    )


def test_names_of_a_bucket_are_those_below_the_prefix(server: Hostile) -> None:
    remote = ObjectRemote("s3://team/gears", bucket_options(f"http://127.0.0.1:{server.port}"))
    server.answer = _list_answer("gears/v7/k/a", "gears/v7/kk/b", "gears/v7/k/.c", "gears/v7/k/", "other/v7/k/d")
    assert remote.names("v7/k/", 5, soon()) == ["v7/k/a"]
    # Its client refuses the whole list where a name is no path.
    server.answer = _list_answer("gears/v7/k/a", "gears/v7/k/../../b")
    with pytest.raises(RemoteError):
        remote.names("v7/k/", 5, soon())


@pytest.mark.parametrize("scheme", ["http", "s3", "redis"])
def test_timeouts_leave_no_threads_and_no_files(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "SOCKET_SECONDS", 1.0)
    before = _open_files()
    with hostile() as server:
        made: dict[str, Remote] = {
            "http": WebRemote(f"http://127.0.0.1:{server.port}"),
            "s3": ObjectRemote("s3://team/gears", bucket_options(f"http://127.0.0.1:{server.port}")),
            "redis": RedisRemote(f"redis://:secret@127.0.0.1:{server.port}"),
        }
        server.answer = [60.0]
        for _ in range(40):
            with pytest.raises(RemoteError):
                made[scheme].get("v7/a", MOST, soon(0.005))
        end = time.monotonic() + 5
        while time.monotonic() < end and _threads_of(made[scheme]):
            time.sleep(0.02)
        assert _threads_of(made[scheme]) == 0
        for connection in list(server.open):
            connection.close()
    assert _open_files() - before < 20  # a client that keeps threads has some of its own


def _threads_of(remote: Remote) -> int:
    return sum(thread.name == f"gearcache {remote.label}" for thread in threading.enumerate())


def _open_files() -> int:
    return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))
