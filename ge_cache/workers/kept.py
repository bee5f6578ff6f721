"""Keep workers of a finished build for the next one: they have already imported their compiler."""

from __future__ import annotations

import atexit
import os
import threading

from gearcache.ge_cache.workers.process import WorkerProcess, start_of
from gearcache.threads import started

#: Seconds without a build after which they end.
KEPT_SECONDS = 60.0
#: Each uses some hundred megabytes. Two compile the gears of a small method before a third has imported anything.
MOST_KEPT = 2


class KeptWorkers:
    """The workers that no build uses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: list[WorkerProcess] = []
        self._timer: threading.Timer | None = None

    def take(self, compiler: str) -> WorkerProcess | None:
        """Return a worker, if a new one would be started in the same way."""
        start = start_of(compiler)
        while True:
            with self._lock:
                worker = next((worker for worker in self._workers if worker.start == start), None)
                if worker is None:
                    return None
                self._workers.remove(worker)
            if not worker.has_exited():
                return worker
            worker.end()

    def keep(self, worker: WorkerProcess) -> None:
        """Keep a worker that waits for a job; the oldest one ends if they are too many."""
        timer = threading.Timer(KEPT_SECONDS, self.end)
        timer.daemon = True
        if not started(timer):
            worker.end()
            return
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._workers.append(worker)
            dismissed = [self._workers.pop(0)] if len(self._workers) > MOST_KEPT else []
            self._timer = timer
        for former in dismissed:
            former.end()

    def end(self) -> None:
        """End all."""
        with self._lock:
            workers, self._workers = self._workers, []
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        for worker in workers:
            worker.end()

    def forget(self) -> None:
        """Forget them in a fork: they belong to the parent."""
        self._lock, self._workers, self._timer = threading.Lock(), [], None


KEPT = KeptWorkers()
atexit.register(KEPT.end)
os.register_at_fork(after_in_child=KEPT.forget)
