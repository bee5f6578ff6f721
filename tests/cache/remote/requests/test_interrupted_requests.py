"""The timeout of a program's request, raised by a signal handler, is no fault of the tier that it waits for."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.protocol import Deadline
from gearcache.cache.remote.engines.redis_server import RedisRemote
from gearcache.cache.remote.engines.web import WebRemote


def _expire(*arguments: Any) -> None:
    raise TimeoutError("the request took too long")


@pytest.mark.parametrize(
    ("make", "place"),
    [
        pytest.param(lambda folder: FolderRemote(folder), "_read", id="folder"),
        pytest.param(lambda folder: RedisRemote("redis://127.0.0.1:1"), "_connected", id="redis"),
        pytest.param(lambda folder: WebRemote("http://127.0.0.1:1/x"), "_connection", id="web"),
        pytest.param(lambda folder: ObjectRemote("s3://bucket", {}), "_store", id="bucket"),
    ],
)
def test_it_is_raised_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Any], place: str
) -> None:
    remote = make(tmp_path)
    (tmp_path / "x").write_bytes(b"data")
    monkeypatch.setattr(type(remote), place, lambda *arguments: time.sleep(1.0))
    before = signal.signal(signal.SIGALRM, _expire)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError, match="the request took too long"):
            remote.get("x", 1 << 20, Deadline.after(30.0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
