"""Keep the worker of a finished build for the next one: it has already imported its compiler."""

from __future__ import annotations

import atexit
import os
import threading

from gearcache.ge_cache.workers.process import WorkerProcess, start_of

#: Seconds without a build after which it ends: it uses some hundred megabytes.
KEPT_SECONDS = 60.0


class KeptWorker:
    """At most one worker that no build uses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: WorkerProcess | None = None
        self._timer: threading.Timer | None = None

    def take(self, compiler: str) -> WorkerProcess | None:
        """Return the worker, if a new one would be started in the same way."""
        with self._lock:
            worker = self._worker
            if worker is None or worker.start != start_of(compiler):
                return None
            self._let_go()
        if worker.has_exited():
            worker.end()
            return None
        return worker

    def keep(self, worker: WorkerProcess) -> None:
        """Keep a worker that waits for a job, in place of the current one."""
        timer = threading.Timer(KEPT_SECONDS, self.end)
        timer.daemon = True
        with self._lock:
            former = self._worker
            self._let_go()
            self._worker, self._timer = worker, timer
            timer.start()
        if former is not None:
            former.end()

    def end(self) -> None:
        """End the worker."""
        with self._lock:
            worker = self._worker
            self._let_go()
        if worker is not None:
            worker.end()

    def forget(self) -> None:
        """Forget the worker in a fork: it belongs to the parent."""
        self._lock, self._worker, self._timer = threading.Lock(), None, None

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._worker = self._timer = None


KEPT = KeptWorker()
atexit.register(KEPT.end)
os.register_at_fork(after_in_child=KEPT.forget)
