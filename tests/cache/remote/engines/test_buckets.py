"""The client of buckets has threads: forked children, the end of a process, panics, and clients that are kept."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Iterator

import pytest

from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.protocol import RemoteError
from tests.cache.remote.real_engines import bucket, soon

MOST = 1 << 20


@pytest.fixture(scope="module")
def remote() -> Iterator[ObjectRemote]:
    with bucket() as made:
        assert isinstance(made, ObjectRemote)
        yield made


def test_a_forked_child_asks_by_another_process(remote: ObjectRemote) -> None:
    data = os.urandom(3 << 20)
    remote.put("v4/fork/a", data, soon())
    child = os.fork()
    if not child:
        code = 1
        try:
            assert remote.get("v4/fork/a", 1 << 24, soon()) == data
            assert remote.get("v4/fork/none", MOST, soon()) is None
            assert remote.size("v4/fork/a", soon()) == len(data)
            assert remote.put("v4/fork/b", data, soon(), create=True)
            assert not remote.put("v4/fork/b", b"other", soon(), create=True)
            assert remote.names("v4/fork/", 10, soon()) == ["v4/fork/a", "v4/fork/b"]
            remote.delete("v4/fork/a", soon())
            with pytest.raises(RemoteError, match="more than 4"):
                remote.get("v4/fork/b", 4, soon())
            with pytest.raises(RemoteError, match="no name"):
                remote.get("../a", 4, soon())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert _ended(child) == 0
    assert remote.names("v4/fork/", 10, soon()) == ["v4/fork/b"]
    assert remote.get("v4/fork/b", 1 << 24, soon()) == data


def test_settings_that_the_client_refuses_are_an_error_without_secrets() -> None:
    for options in (
        {"endpoint": "nonsense", "secret_access_key": "test-secret", "access_key_id": "test-secret"},
        {"unknown": "1", "secret_access_key": "test-secret"},
        {"region": "\n", "secret_access_key": "test-secret", "access_key_id": "a", "endpoint": "http://127.0.0.1:1"},
        {"virtual_hosted_style_request": "perhaps", "secret_access_key": "test-secret"},
        {"region": "a", "skip_signature": "true", "endpoint": "http://user:test-secret@127.0.0.1:1"},
    ):
        with pytest.raises(RemoteError) as caught:
            ObjectRemote("s3://team/gears", options).get("v4/a", 1, soon(2))
        assert "test-secret" not in str(caught.value)


def _ended(child: int) -> int:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if (found := os.waitpid(child, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(found[1])
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")
