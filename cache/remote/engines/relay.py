"""A helper process that sends requests to a bucket for a forked child, which lacks the client's threads."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from gearcache.cache.remote.engines.protocol import Deadline, Denied, Late, Remote, RemoteError, TooLarge
from gearcache.cache.remote.requests.deadline import within
from gearcache.child_process import messages_as_output, python_command, python_environment, receive, send

#: Allowed operations; each is a method of the engine.
_OPERATIONS = ("get", "size", "put", "names", "delete")
_ERRORS = {kind.__name__: kind for kind in (RemoteError, Denied, Late, TooLarge)}
_PROGRAM = """\
from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.relay import serve
serve(ObjectRemote)
"""


class Relay:
    """An `ObjectRemote` in another process, which starts at the first request and ends with this one.

    It answers one request at a time. Safe to use from several threads.
    """

    def __init__(self, label: str, url: str, options: Mapping[str, Any]) -> None:
        self._label = label
        self._bucket = [url, dict(options)]
        self._lock = threading.Lock()
        #: The process while it is idle. An abandoned process is never used again.
        self._idle: subprocess.Popen[bytes] | None = None

    def ask(self, operation: str, arguments: Mapping[str, Any], deadline: Deadline) -> Any:
        """Return the result of the engine's method; `RemoteError` as the method raises it, or at the deadline."""
        if not self._lock.acquire(timeout=deadline.check(self._label)):
            raise RemoteError(self._label, "other requests have taken all of its budget")
        processes: list[subprocess.Popen[bytes]] = []
        is_over = threading.Event()

        def work() -> Any:
            idle, self._idle = self._idle, None
            process = idle if idle is not None and idle.poll() is None else self._start()
            processes.append(process)
            try:
                if is_over.is_set():
                    raise EOFError
                answer = self._ask(process, operation, arguments, deadline)
            except BaseException:
                _end(process)
                raise
            self._idle = process
            return answer

        def give_up() -> None:
            is_over.set()
            for process in processes:
                process.kill()

        try:
            kind, value = within(deadline, self._label, work, give_up)
        except (OSError, EOFError, ValueError) as error:
            raise RemoteError(self._label, f"the process that asks it has ended: {type(error).__name__}") from error
        finally:
            self._lock.release()
        if kind in _ERRORS:
            raise _ERRORS[kind](self._label, value)
        return value

    def _ask(
        self, process: subprocess.Popen[bytes], operation: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin, [operation, dict(arguments), deadline.check(self._label)])
        return receive(process.stdout)

    def _start(self) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise RemoteError(self._label, "there is no Python program that could ask it for this forked process")
        process = subprocess.Popen(
            python_command(_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=python_environment(),
        )
        assert process.stdin is not None
        send(process.stdin, self._bucket)
        return process

    def __del__(self) -> None:
        if self._idle is not None:
            _end(self._idle)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError, ValueError):
            if pipe is not None:
                pipe.close()


def serve(engine: Callable[[str, Mapping[str, Any]], Remote]) -> None:
    """Answer requests until the standard input ends, which means that the client process is gone."""
    requests, answers = sys.stdin.buffer, messages_as_output()
    with contextlib.suppress(EOFError, OSError):
        url, options = receive(requests)
        remote = engine(url, options)
        while True:
            operation, arguments, seconds = receive(requests)
            try:
                if operation not in _OPERATIONS:
                    raise RemoteError(remote.label, f"`{operation}` is not an operation")
                answer = ["value", getattr(remote, operation)(deadline=Deadline.after(seconds), **arguments)]
            except RemoteError as error:
                answer = [type(error).__name__, error.problem]
            send(answers, answer)
    os._exit(0)
