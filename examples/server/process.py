"""A worker process, from the view of its parent."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

#: Seconds that a worker has to answer the current requests; uvicorn itself takes 20 at most.
GRACE = 30


class Worker:
    """Starts `worker.py`, and records its reports. Its channel shows the worker when this process ends."""

    def __init__(self, listening: socket.socket) -> None:
        self._channel, theirs = socket.socketpair()
        fds = (listening.fileno(), theirs.fileno())
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), *map(str, fds)]
        # A separate session: Ctrl-C reaches only the parent, which lets the workers finish.
        self._process = subprocess.Popen(command, pass_fds=fds, start_new_session=True)
        theirs.close()
        self.pid = self._process.pid
        self.report: dict[str, Any] = {"pid": self.pid, "state": "cold"}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with self._channel.makefile("rb") as lines:
            for line in lines:
                self.report = json.loads(line)

    @property
    def was_ready(self) -> bool:
        """Whether it has reported that it is warm."""
        return bool(self.report["state"] == "ready")

    @property
    def is_ready(self) -> bool:
        """Whether it is warm and running."""
        return self.was_ready and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def has_failed(self) -> bool:
        """Whether it will never be ready."""
        return self.has_ended or self.report["state"] not in ("cold", "ready")

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process."""
        return self._process.poll()

    def ask_stop(self, cold: str) -> None:
        """Let it answer the current requests, and end. One that was never warm may not have accepted any."""
        accepts = self.was_ready or cold == "eager"
        self._process.send_signal(signal.SIGTERM if accepts else signal.SIGKILL)

    def wait(self) -> None:
        """Wait until it has ended; a worker that takes longer than `GRACE` is killed."""
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._channel.close()
