"""The client of buckets has threads: forked children, the end of a process, panics, and clients that are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from gearcache.cache.remote.objects import ObjectRemote
from gearcache.cache.remote.protocol import Deadline, RemoteError
from tests.cache.remote.engines import bucket
from tests.cache.remote.hostile import hostile
from tests.cache.remote.rclone import bucket_options

MOST = 1 << 20


@pytest.fixture(scope="module")
def remote() -> Iterator[ObjectRemote]:
    with bucket() as made:
        assert isinstance(made, ObjectRemote)
        yield made


def soon(seconds: float = 10.0) -> Deadline:
    return Deadline.after(seconds)


def test_a_forked_child_is_told_at_once_that_the_client_is_its_parents(remote: ObjectRemote) -> None:
    remote.put("v4/a", b"data", soon())
    child = os.fork()
    if not child:
        code = 1
        try:
            for ask in (lambda: remote.get("v4/a", MOST, soon()), lambda: remote.put("v4/b", b"data", soon())):
                begin = time.monotonic()
                try:
                    ask()
                except RemoteError as error:
                    code = 0 if "forked" in str(error) and time.monotonic() - begin < 1 else 2
        finally:
            os._exit(code)
    assert _ended(child) == 0
    assert remote.get("v4/a", MOST, soon()) == b"data"


def test_a_forked_child_of_a_process_that_has_not_used_it_uses_it(remote: ObjectRemote) -> None:
    program = f"""
        import os
        from gearcache.cache.remote.objects import ObjectRemote
        from gearcache.cache.remote.protocol import Deadline

        remote = ObjectRemote("s3://team/gears", {remote._options!r})
        child = os.fork()
        assert remote.put(f"v4/{{'parent' if child else 'child'}}", b"data", Deadline.after(10))
        if not child:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
    assert {"v4/child", "v4/parent"} <= set(remote.names("v4/", 10, soon()))


def test_a_process_ends_while_a_request_hangs() -> None:
    with hostile() as server:
        server.answer = [30.0]
        program = f"""
            from gearcache.cache.remote.objects import ObjectRemote
            from gearcache.cache.remote.protocol import Deadline, RemoteError

            remote = ObjectRemote("s3://team/gears", {bucket_options(f"http://127.0.0.1:{server.port}")!r})
            for _ in range(3):
                try:
                    remote.get("v4/a", 1, Deadline.after(0.9))
                except RemoteError:
                    pass
        """
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
        )
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_panic_of_the_client_is_an_error(remote: ObjectRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As a Rust extension raises it."""

    def panic(*_: object, **__: object) -> None:
        raise PanicException("no reactor is running")

    monkeypatch.setattr("obstore.get", panic)
    with pytest.raises(RemoteError, match="its client failed: no reactor is running"):
        remote.get("v4/a", MOST, soon())


def test_settings_that_the_client_refuses_are_an_error_without_secrets() -> None:
    for options in (
        {"endpoint": "nonsense", "secret_access_key": "test-secret", "access_key_id": "test-secret"},
        {"unknown": "1", "secret_access_key": "test-secret"},
        {"region": "\n", "secret_access_key": "test-secret", "access_key_id": "a", "endpoint": "http://127.0.0.1:1"},
        {"virtual_hosted_style_request": "perhaps", "secret_access_key": "test-secret"},
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
