"""Serve the encoder with several workers on one port, and their health and metrics on another one.

    python examples/server/serve.py --workers 2 --port 8000 --admin-port 8001

    curl -s localhost:8000/embed -H 'content-type: application/json' -d '{"texts": ["A cat sleeps."]}'
    curl -s localhost:8001/ready      # 200 once every worker has been warm: loaded or compiled all gears
    curl -s localhost:8001/live       # 200 as long as this process runs, also during a compile
    curl -s localhost:8001/metrics    # the sums of all workers, those that have ended included

SIGHUP is a deploy: one worker after the other is replaced by one that imports the code anew. Each new one has to be
warm before an old one stops, and if it cannot become warm, the old ones stay. SIGTERM and Ctrl-C stop the server after
the current requests are answered. This process never imports torch.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from admin import Admin
from process import Worker

#: Seconds between two looks at the workers.
TICK = 0.05
#: The server stops if this many workers in a row end before they are ready, and none ever was.
TRIES = 3


class Supervisor:
    """Starts workers, replaces those that end, and exchanges them for new code. Runs in the main thread."""

    def __init__(self, listening: socket.socket, workers: int, cold: str) -> None:
        self.listening = listening
        self.wanted = workers
        self.cold = cold
        #: The admin's thread reads these; they are only ever replaced as a whole.
        self.workers: tuple[Worker, ...] = ()
        self.was_ready = False
        self.deploys = {"done": 0, "failed": 0}
        self._stops = self._deploys = False
        self._failures = 0
        self._next_start = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether every worker has been warm once, and one is."""
        return self.was_ready and any(worker.is_ready for worker in self.workers)

    def run(self) -> int:
        """Serve until a signal says stop; returns the exit code."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._ask_stop)
        signal.signal(signal.SIGHUP, self._ask_deploy)
        while not self._stops and not (self._failures >= TRIES and not self.was_ready):
            self._replace_ended()
            if self._deploys:
                self._deploys = False
                self._deploy()
            time.sleep(TICK)
        for worker in self.workers:
            worker.ask_stop(self.cold)
        for worker in self.workers:
            worker.wait()
        return 0 if self._stops else 1

    def _ask_stop(self, signum: int, frame: Any) -> None:
        self._stops = True

    def _ask_deploy(self, signum: int, frame: Any) -> None:
        self._deploys = True

    def _start(self) -> Worker:
        worker = Worker(self.listening)
        self.workers = (*self.workers, worker)
        return worker

    def _replace_ended(self) -> None:
        for worker in self.workers:
            if worker.has_ended:
                self.workers = tuple(other for other in self.workers if other is not worker)
                self._failures = 0 if worker.was_ready else self._failures + 1
                self._next_start = time.monotonic() + min(10.0, 0.1 * 2**self._failures)
                say(f"worker {worker.pid} has ended with {worker.exit_code}")
        if time.monotonic() >= self._next_start:
            while len(self.workers) < self.wanted:
                say(f"worker {self._start().pid} starts")
        if not self.was_ready and len(self.workers) == self.wanted and all(worker.is_ready for worker in self.workers):
            self.was_ready = True
            say("ready")

    def _deploy(self) -> None:
        """Exchange all workers; a new one that does not become ready ends the deploy."""
        say("deploy: starts")
        for old in self.workers:
            new = self._start()
            while not (new.is_ready or new.has_failed or self._stops):
                time.sleep(TICK)
            if not new.is_ready:
                new.ask_stop(self.cold)
                new.wait()
                self.workers = tuple(worker for worker in self.workers if worker is not new)
                self.deploys["failed"] += 1
                say(f"deploy: failed, worker {new.pid} did not get ready; the old workers stay")
                return
            old.ask_stop(self.cold)
            old.wait()
            self.workers = tuple(worker for worker in self.workers if worker is not old)
            say(f"deploy: worker {new.pid} has taken the place of {old.pid}")
        self.deploys["done"] += 1
        say("deploy: done")


def say(text: str) -> None:
    """Write a line to stderr."""
    print(f"serve: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Read the options, open both ports, and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--host", default="127.0.0.1", help="address of both ports (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="of the application (default: 8000; 0: any free one)")
    parser.add_argument("--admin-port", type=int, default=8001, help="of /ready, /live and /metrics (default: 8001)")
    parser.add_argument("--model", choices=("minilm", "tiny"), default="minilm", help="tiny: random weights")
    parser.add_argument("--backend", choices=("inductor", "eager"), default="inductor", help="eager: no compiler")
    parser.add_argument(
        "--cold",
        choices=("wait", "eager"),
        default="wait",
        help="while nothing is compiled yet, requests wait, or the method itself answers them (default: wait)",
    )
    parser.add_argument(
        "--with",
        dest="served_with",
        choices=("gears", "eager", "compile"),
        default="gears",
        help="gears, or to compare: the method itself, or torch.compile",
    )
    options = parser.parse_args()
    os.environ.update(
        SERVER_MODEL=options.model,
        SERVER_BACKEND=options.backend,
        SERVER_COLD=options.cold,
        SERVER_WITH=options.served_with,
    )
    listening = socket.create_server((options.host, options.port), backlog=2048)
    with tempfile.TemporaryDirectory(prefix="server-metrics-") as folder:
        # Each worker keeps its counters in files there; they remain when it ends, so that no sum ever decreases.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        supervisor = Supervisor(listening, options.workers, options.cold)
        admin = Admin(supervisor, (options.host, options.admin_port), Path(folder))
        say(f"http://{options.host}:{listening.getsockname()[1]}, admin http://{options.host}:{admin.port}")
        code = supervisor.run()
        admin.close()
    say("stopped")
    sys.exit(code)


if __name__ == "__main__":
    main()
