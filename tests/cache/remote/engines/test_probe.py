"""Whether a store keeps to `create` is tried, once a day."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.probe import REMEMBERED_SECONDS, honours_create
from gearcache.cache.remote.engines.protocol import Deadline, Remote, RemoteError
from gearcache.cache.remote.engines.web import WebRemote
from gearcache.cache.remote.names import PROBES
from tests.cache.remote.hostile import hostile, http_answer
from tests.cache.remote.rclone import bucket_options, careless_bucket
from tests.cache.remote.real_engines import bucket, soon

OPENED = {"moto": (bucket, True), "rclone": (careless_bucket, False)}


@pytest.fixture(scope="module", params=OPENED)
def store(request: pytest.FixtureRequest) -> Iterator[tuple[Remote, bool]]:
    opened, honours = OPENED[request.param]
    with opened() as remote:
        yield remote, honours


def test_a_try_leaves_nothing_and_its_answer_is_remembered_for_a_day(
    store: tuple[Remote, bool], tmp_path: Path
) -> None:
    remote, honours = store
    assert honours_create(remote, soon(), tmp_path) is honours
    assert remote.names(PROBES, 10, soon()) == []
    past = Deadline.after(-1)  # with which every request is an error
    assert honours_create(remote, past, tmp_path) is honours
    (path,) = tmp_path.iterdir()
    for age in (REMEMBERED_SECONDS + 1, -3600.0):
        os.utime(path, (time.time() - age,) * 2)
        with pytest.raises(RemoteError):
            honours_create(remote, past, tmp_path)
    path.write_bytes(b"perhaps")
    with pytest.raises(RemoteError):
        honours_create(remote, past, tmp_path)
    assert honours_create(remote, soon(), tmp_path) is honours
    assert honours_create(remote, past, tmp_path) is honours
    # Where there is no folder for it, nothing is remembered.
    assert honours_create(remote, soon(), tmp_path / "absent") is honours


@pytest.mark.parametrize("status", ["403 Forbidden", "500 Internal Server Error"])
def test_an_error_comes_out_and_is_not_remembered(tmp_path: Path, status: str) -> None:
    with hostile() as server:
        server.answer = http_answer(b"", status)
        remote = ObjectRemote("s3://team/gears", bucket_options(f"http://127.0.0.1:{server.port}"))
        with pytest.raises(RemoteError, match=status[:3] if status[0] == "5" else "privileges"):
            honours_create(remote, soon(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_engines_that_know_are_not_asked(tmp_path: Path) -> None:
    with hostile() as server:
        assert not honours_create(WebRemote(f"http://127.0.0.1:{server.port}"), soon(), tmp_path)
        assert server.requests == []
    assert list(tmp_path.iterdir()) == []
