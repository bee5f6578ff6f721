"""The client of buckets: forked children, settings, and the daily try whether a store keeps to `create`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.probe import REMEMBERED_SECONDS, honours_create
from gearcache.cache.remote.engines.protocol import Deadline, RemoteError
from gearcache.cache.remote.engines.web import WebRemote
from gearcache.cache.remote.names import PROBES
from tests.cache.remote.hostile import hostile, http_answer
from tests.cache.remote.rclone import careless_bucket
from tests.cache.remote.real_engines import bucket, bucket_options, soon
from tests.support.forks import run_in_fork

MOST = 1 << 20


@pytest.fixture(scope="module")
def remote() -> Iterator[ObjectRemote]:
    with bucket() as made:
        assert isinstance(made, ObjectRemote)
        yield made


def test_a_forked_child_asks_by_another_process(remote: ObjectRemote) -> None:
    data = os.urandom(3 << 20)
    remote.put("v7/fork/a", data, soon())

    def ask() -> None:
        signal.alarm(20)  # a child that hangs is killed
        assert remote.get("v7/fork/a", 1 << 24, soon()) == data
        assert remote.get("v7/fork/none", MOST, soon()) is None
        assert remote.size("v7/fork/a", soon()) == len(data)
        assert remote.put("v7/fork/b", data, soon(), create=True)
        assert not remote.put("v7/fork/b", b"other", soon(), create=True)
        assert remote.names("v7/fork/", 10, soon()) == ["v7/fork/a", "v7/fork/b"]
        remote.delete("v7/fork/a", soon())
        with pytest.raises(RemoteError, match="more than 4"):
            remote.get("v7/fork/b", 4, soon())
        with pytest.raises(RemoteError, match="no name"):
            remote.get("../a", 4, soon())

    assert run_in_fork(ask) == 0
    assert remote.names("v7/fork/", 10, soon()) == ["v7/fork/b"]
    assert remote.get("v7/fork/b", 1 << 24, soon()) == data


def test_settings_that_the_client_refuses_are_an_error_without_secrets() -> None:
    for options in (
        {"endpoint": "nonsense", "secret_access_key": "test-secret", "access_key_id": "test-secret"},
        {"unknown": "1", "secret_access_key": "test-secret"},
        {"region": "\n", "secret_access_key": "test-secret", "access_key_id": "a", "endpoint": "http://127.0.0.1:1"},
        {"virtual_hosted_style_request": "perhaps", "secret_access_key": "test-secret"},
        {"region": "a", "skip_signature": "true", "endpoint": "http://user:test-secret@127.0.0.1:1"},
    ):
        with pytest.raises(RemoteError) as caught:
            ObjectRemote("s3://team/gears", options).get("v7/a", 1, soon(2))
        assert "test-secret" not in str(caught.value)


def test_a_try_leaves_nothing_and_its_answer_is_remembered_for_an_hour(remote: ObjectRemote, tmp_path: Path) -> None:
    assert honours_create(remote, soon(), tmp_path)
    assert remote.names(PROBES, 10, soon()) == []
    past = Deadline.after(-1)  # with which every request is an error
    assert honours_create(remote, past, tmp_path)
    (path,) = tmp_path.iterdir()
    for age in (REMEMBERED_SECONDS + 1, -3600.0):
        os.utime(path, (time.time() - age,) * 2)
        with pytest.raises(RemoteError):
            honours_create(remote, past, tmp_path)
    path.write_bytes(b"perhaps")
    with pytest.raises(RemoteError):
        honours_create(remote, past, tmp_path)
    assert honours_create(remote, soon(), tmp_path)
    # Where there is no folder for it, nothing is remembered.
    assert honours_create(remote, soon(), tmp_path / "absent")


def test_a_server_that_believes_no_condition_is_found_out(tmp_path: Path) -> None:
    with careless_bucket() as careless:
        assert not honours_create(careless, soon(), tmp_path)
        assert not honours_create(careless, Deadline.after(-1), tmp_path)


def test_a_fault_is_not_remembered_and_a_denial_is(tmp_path: Path) -> None:
    with hostile() as server:
        remote = ObjectRemote("s3://team/gears", bucket_options(f"http://127.0.0.1:{server.port}"))
        server.answer = http_answer(b"", "500 Internal Server Error")
        with pytest.raises(RemoteError, match="500"):
            honours_create(remote, soon(), tmp_path)
        assert list(tmp_path.iterdir()) == []
        server.answer = http_answer(b"", "403 Forbidden")
        assert not honours_create(remote, soon(), tmp_path)
        asked = len(server.requests)
        assert not honours_create(remote, soon(), tmp_path)
        assert len(server.requests) == asked


def test_engines_that_know_are_not_asked(tmp_path: Path) -> None:
    with hostile() as server:
        assert not honours_create(WebRemote(f"http://127.0.0.1:{server.port}"), soon(), tmp_path)
        assert server.requests == []
    assert list(tmp_path.iterdir()) == []
