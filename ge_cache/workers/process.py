"""One compile worker from its parent's side: started, given jobs, and ended with the compilers that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gearcache.child_process import python_command, python_environment, receive, send
from gearcache.ge_cache.backend import Artifact
from gearcache.ge_cache.compile_job import CompileJob, plain_job
from gearcache.ge_cache.workers.program import GRACE
from gearcache.ge_cache.workers.scratch import Scratch
from gearcache.threads import started

_END_SECONDS = GRACE + 2.0
_POLL_SECONDS = 0.01


#: A compiler, the working folder, the command and the environment.
Start = tuple[str, str, tuple[str, ...], tuple[tuple[str, str], ...]]
#: Inductor sets it to its default in a process that imports it; the place of files does not change code.
_PLACE_OF_FILES = "TORCHINDUCTOR_CACHE_DIR"


def start_of(compiler: str) -> Start:
    """Return everything that decides how a new worker would behave."""
    folder = ""
    with contextlib.suppress(OSError):  # it was removed
        folder = str(Path.cwd())
    environment = {name: value for name, value in python_environment().items() if name != _PLACE_OF_FILES}
    return compiler, folder, tuple(python_command("")), tuple(sorted(environment.items()))


class CompileFailed(Exception):
    """A failed job; the text says why."""


class UnknownOperator(CompileFailed):
    """A job whose graph calls an operator that the worker lacks."""


class CompileTimeout(CompileFailed):
    """A job that exceeded its time limit."""


class WorkerProcess:
    """A worker in a process group of its own; raises `OSError` or `ValueError` where it cannot be started.

    `compiler` is the `worker` of a backend.
    """

    def __init__(self, compiler: str) -> None:
        #: The settings that decide how it behaves.
        self.start = start_of(compiler)
        self._ending = threading.Lock()
        self._is_ended = self._is_late = False
        #: Whether it has answered.
        self.is_up = False
        #: Whether it has ended its last job, and waits for another one.
        self.is_idle = False
        self._reason = ""
        with contextlib.ExitStack() as undo:
            self._scratch = Scratch()
            undo.callback(self._scratch.remove)
            worker_end, self._life_line = os.pipe()
            undo.callback(os.close, self._life_line)
            try:
                self._log = undo.enter_context(tempfile.TemporaryFile(dir=self._scratch.path))
                program = "from gearcache.ge_cache.workers.program import main\n"
                program += f"main({os.getpid()}, {worker_end}, {str(self._scratch.path)!r}, {compiler!r})"
                self._process = subprocess.Popen(
                    python_command(program),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    env=python_environment() | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                    pass_fds=[worker_end],
                    start_new_session=True,
                )
            finally:
                os.close(worker_end)
            undo.pop_all()

    @property
    def pid(self) -> int:
        """Return the id of the process, which is also its group's."""
        return self._process.pid

    @property
    def is_ended(self) -> bool:
        """Return whether it accepts no more jobs."""
        return self._is_ended

    def has_exited(self) -> bool:
        """Return whether the process has exited: it may have been killed."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # a handler of the program has waited for it
            return True

    def prepare(self, threads: int, target: str) -> None:
        """Let it do before the first job the work that every first compile needs."""
        with contextlib.suppress(OSError):  # the next job reports that it is gone
            self._send({"kind": "prepare", "threads": threads, "target": target})

    def compile(self, job: CompileJob, stage: Callable[[str], None], limit: float) -> Artifact:
        """Run one job to its end; `CompileFailed` and its subclasses."""
        timer = threading.Timer(min(limit, threading.TIMEOUT_MAX), self._end_late)
        timer.daemon = True
        if not started(timer):
            raise CompileFailed("no thread can be started for its time limit")
        self.is_idle = False
        try:
            return self._result(job, stage)
        except (OSError, ValueError, EOFError) as error:
            fault = error
        finally:
            timer.cancel()
        self.end()
        if self._is_late:
            raise CompileTimeout(
                f"it had not ended after {limit:g} s and was stopped; raise `compile_timeout` or "
                "`GEARCACHE_COMPILE_TIMEOUT` (seconds) if it takes longer"
            )
        raise CompileFailed(f"the worker process broke: {fault}, {self._reason}")

    def end(self) -> None:
        """End the process and everything that it has started, also while it compiles; may be called again."""
        with self._ending:
            if self._is_ended:
                return
            self._is_ended = True
            has_died = self.has_exited()
            # It ends its group itself, and lets compilers delete partial files. A fork of this process may hold the
            # line too, so that to close it tells the worker nothing.
            with contextlib.suppress(OSError):
                os.write(self._life_line, b"\0")
            os.close(self._life_line)
            if has_died:
                self._signal(signal.SIGTERM)
                time.sleep(GRACE)
            deadline = time.monotonic() + _END_SECONDS
            while not self.has_exited() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            # Until it is waited for, no other group can have its id.
            self._signal(signal.SIGKILL)
            code = self._process.wait()
            self._log.seek(0)
            self._reason = f"code {code}\n{self._log.read().decode(errors='replace')[-2000:]}"
            for stream in (self._process.stdin, self._process.stdout, self._log):
                if stream is not None:
                    with contextlib.suppress(OSError):  # a message was on the way
                        stream.close()
            self._scratch.remove()

    def _end_late(self) -> None:
        self._is_late = True
        self.end()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _result(self, job: CompileJob, stage: Callable[[str], None]) -> Artifact:
        self._send({"kind": "compile", "job": plain_job(job)})
        assert self._process.stdout is not None
        while True:
            message = receive(self._process.stdout)
            self.is_up = True
            if message["kind"] == "stage":
                stage(message["stage"])
                continue
            self.is_idle = True
            if message["kind"] == "done":
                return Artifact(*message["artifact"])
            if message["kind"] == "unknown":
                raise UnknownOperator(message["error"])
            raise CompileFailed(f"{message['error']}\n{message['trace']}")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        send(self._process.stdin, message)
