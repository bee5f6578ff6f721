"""Compile many gears: in worker processes for slow compilers, in turn for quick ones."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from gearcache.errors import CompileError
from gearcache.ge_cache.backend import Artifact, Backend
from gearcache.ge_cache.capture.turns import turn
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.workers.kept import KEPT
from gearcache.ge_cache.workers.process import CompileFailed, CompileTimeout, UnknownOperator, WorkerProcess
from gearcache.ge_cache.workers.scratch import collect_scratch
from gearcache.threads import started
from gearcache.torch_state import outside_autocast

#: Called with (gear text, stage): `wait`, `start` or `begin`, the stages of `Backend.compile`, `done` or `failed`.
Progress = Callable[[str, str], None]


class CompileOutcome(Struct, frozen=True):
    """One gear's artifact, or its error."""

    index: int
    artifact: Artifact | None
    error: CompileError | None
    seconds: float = 0.0


class CompilePool:
    """Worker processes for one build, some of them maybe from the last build. Not thread safe; close it, or use it as a
    context manager.

    The workers start at once and warm up while the caller is still tracing. Where none can be started, and for backends
    that are quick, jobs are compiled in this process. `limit` is how many seconds a worker may take for a job.
    """

    def __init__(self, backend: Backend, jobs: int, threads: int, limit: float) -> None:
        self._backend = backend
        self._limit = limit
        self._slots: list[_Slot] = []
        #: The gear whose compile took too long; jobs that have not begun by then are abandoned, as they would time out
        #: too.
        self._late = ""
        if backend.worker:
            collect_scratch()
            idle_workers = [KEPT.take(backend.worker) for _ in range(jobs)]
            self._slots = [_Slot(backend.worker, idle_worker) for idle_worker in idle_workers]
            # One warm-up is enough: its results are shared through Inductor's folder.
            if idle_workers[0] is None and (worker := self._slots[0].worker()) is not None:
                worker.prepare(threads, backend.target)

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, also compiling ones, and their compilers; one that waits for a job may be kept."""
        for slot in self._slots:
            slot.close()
        self._slots = []

    def compile(self, jobs: Iterator[CompileJob], progress: Progress) -> Iterator[CompileOutcome]:
        """Compile the jobs as they arrive (the next gear is traced meanwhile); outcomes in order of completion."""
        waiting: queue.Queue[tuple[int, CompileJob] | None] = queue.Queue()
        finished: queue.Queue[CompileOutcome] = queue.Queue()
        threads = [
            threading.Thread(target=self._serve, args=(slot, waiting, finished, progress), daemon=True)
            for slot in self._slots
        ]
        threads = [thread for thread in threads if started(thread)]
        if not threads:
            for index, job in enumerate(jobs):
                yield self._compile_here(index, job, progress)
            return
        count = 0
        try:
            for job in jobs:
                progress(job.gear, "wait")
                waiting.put((count, job))
                count += 1
                while not finished.empty():
                    yield finished.get()
        finally:
            for _ in threads:
                waiting.put(None)
        for thread in threads:
            while thread.is_alive() or not finished.empty():
                try:
                    yield finished.get(timeout=0.1)
                except queue.Empty:
                    continue

    def _compile_here(self, index: int, job: CompileJob, progress: Progress) -> CompileOutcome:
        begin = time.monotonic()
        try:
            with turn(), outside_autocast():
                artifact = self._backend.compile(job, lambda stage: progress(job.gear, stage))
        except Exception as error:
            return self._failed(index, job, progress, f"{type(error).__name__}: {error}")
        progress(job.gear, "done")
        return CompileOutcome(index, artifact, None, time.monotonic() - begin)

    def _serve(
        self,
        slot: _Slot,
        waiting: queue.Queue[tuple[int, CompileJob] | None],
        finished: queue.Queue[CompileOutcome],
        progress: Progress,
    ) -> None:
        while (item := waiting.get()) is not None:
            finished.put(self._outcome(slot, *item, progress))

    def _outcome(self, slot: _Slot, index: int, job: CompileJob, progress: Progress) -> CompileOutcome:
        begin = time.monotonic()
        if self._late:
            return self._failed(index, job, progress, f"it was not begun: the compile of gear {self._late} hung")
        if (worker := slot.worker()) is None:
            return self._compile_here(index, job, progress)
        progress(job.gear, "begin" if worker.is_up else "start")
        try:
            artifact = worker.compile(job, lambda stage: progress(job.gear, stage), self._limit)
        except UnknownOperator:
            # An operator that the user's own modules registered exists only in this process.
            return self._compile_here(index, job, progress)
        except CompileFailed as error:
            if isinstance(error, CompileTimeout):
                self._late = job.gear
            return self._failed(index, job, progress, str(error))
        progress(job.gear, "done")
        return CompileOutcome(index, artifact, None, time.monotonic() - begin)

    def _failed(self, index: int, job: CompileJob, progress: Progress, cause: str) -> CompileOutcome:
        progress(job.gear, "failed")
        return CompileOutcome(index, None, CompileError(job.method, job.gear, cause))


class _Slot:
    """The place of one worker; after its death the next job gets a new one."""

    def __init__(self, compiler: str, worker: WorkerProcess | None = None) -> None:
        self._compiler = compiler
        self._lock = threading.Lock()
        self._is_closed = False
        self._worker = worker
        self.worker()

    def worker(self) -> WorkerProcess | None:
        """Return a live worker; None where no process can be started."""
        with self._lock:
            if not self._is_closed and (self._worker is None or self._worker.is_ended):
                self._worker = None
                with contextlib.suppress(OSError, ValueError, TypeError):  # also where Python has no path of its own
                    self._worker = WorkerProcess(self._compiler)
            return self._worker

    def close(self) -> None:
        """Release the worker: keep it where it waits for a job, end it where it works."""
        with self._lock:
            self._is_closed = True
            if self._worker is None or self._worker.is_ended:
                return
            if self._worker.is_idle:
                KEPT.keep(self._worker)
            else:
                self._worker.end()
