"""Tiers behind TLS: the certificate must be that of the host, and of somebody whom the host trusts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gearcache.cache.remote.engines.protocol import Remote, RemoteError
from gearcache.cache.remote.engines.redis_server import RedisRemote
from gearcache.cache.remote.engines.web import WebRemote
from tests.cache.remote.hostile import hostile, http_answer
from tests.cache.remote.real_engines import redis_server, soon
from tests.cache.remote.tls import make_certificate, tls

DATA = os.urandom(300_000)


@pytest.fixture(params=["localhost", "elsewhere.example"])
def certificate(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make_certificate(tmp_path, request.param)


@pytest.fixture(params=["web", "redis"])
def remote(request: pytest.FixtureRequest, certificate: Path) -> Iterator[Remote]:
    if request.param == "web":
        with hostile() as server, tls(server.port, certificate) as port:
            server.answer = http_answer(DATA)
            yield WebRemote(f"https://localhost:{port}/site")
    else:
        with redis_server("--requirepass", "test-secret") as inner, tls(inner, certificate) as port:
            RedisRemote(f"redis://:test-secret@127.0.0.1:{inner}").put("v7/a", DATA, soon())
            yield RedisRemote(f"rediss://:test-secret@localhost:{port}")


def test_a_certificate_is_checked(remote: Remote, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RemoteError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        remote.get("v7/a", 1 << 20, soon())
    assert "test-secret" not in str(caught.value)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    if certificate.stem == "localhost":
        for _ in range(3):
            assert remote.get("v7/a", 1 << 20, soon()) == DATA
    else:
        with pytest.raises(RemoteError, match="Hostname mismatch"):
            remote.get("v7/a", 1 << 20, soon())
