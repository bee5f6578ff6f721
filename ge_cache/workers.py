"""Compiling many gears: worker processes for slow compilers, in turn for quick ones."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gearcache.errors import CompileError
from gearcache.ge_cache.backend import Artifact, Backend, CompileJob, plain_job
from gearcache.ge_cache.worker import receive, send

#: Called with (gear text, stage); stages are `wait`, `lower`, `compile`, `done` and `failed`.
Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class Outcome:
    """One gear's artifact, or the error that it ended with."""

    index: int
    artifact: Artifact | None
    error: CompileError | None
    seconds: float = 0.0


class CompilePool:
    """Worker processes for one build. Not thread safe; close it, or use it as a context manager.

    The workers start at once and warm up while the caller is still tracing.
    """

    def __init__(self, backend: Backend, jobs: int, threads: int) -> None:
        self._backend = backend
        self._workers: list[_Worker] = []
        if backend.parallel:
            self._workers = [_Worker() for _ in range(max(1, jobs))]
            # One warm-up is enough: what it builds is shared through Inductor's folder.
            self._workers[0].send({"kind": "prepare", "threads": threads})

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, also those that still compile."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def compile(self, jobs: Iterator[CompileJob], progress: Progress) -> Iterator[Outcome]:
        """Compile the jobs as they come (tracing the next gear goes on meanwhile); outcomes in order of completion."""
        if not self._workers:
            for index, job in enumerate(jobs):
                yield self._here(index, job, progress)
            return
        waiting: queue.Queue[tuple[int, CompileJob] | None] = queue.Queue()
        finished: queue.Queue[Outcome] = queue.Queue()
        threads = [
            threading.Thread(target=self._serve, args=(worker, waiting, finished, progress), daemon=True)
            for worker in self._workers
        ]
        for thread in threads:
            thread.start()
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

    def _here(self, index: int, job: CompileJob, progress: Progress) -> Outcome:
        begin = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="gearcache-") as workdir:
                artifact = self._backend.compile(job, Path(workdir), lambda stage: progress(job.gear, stage))
        except Exception as error:
            progress(job.gear, "failed")
            return Outcome(index, None, CompileError(job.method, job.gear, f"{type(error).__name__}: {error}"))
        progress(job.gear, "done")
        return Outcome(index, artifact, None, time.monotonic() - begin)

    def _serve(
        self,
        worker: _Worker,
        waiting: queue.Queue[tuple[int, CompileJob] | None],
        finished: queue.Queue[Outcome],
        progress: Progress,
    ) -> None:
        while (item := waiting.get()) is not None:
            index, job = item
            # An operator that the user's own modules registered exists in this process only.
            finished.put(worker.compile(index, job, progress) or self._here(index, job, progress))


class _Worker:
    """One worker process and its message streams."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile(prefix="gearcache-worker-")  # noqa: SIM115 - closed in `close`
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gearcache.ge_cache.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        send(self._process.stdin, message)  # type: ignore[arg-type]

    def compile(self, index: int, job: CompileJob, progress: Progress) -> Outcome | None:
        """Run one job to its end; None when the worker does not know an operator of the graph.

        A worker that dies is an error of this gear.
        """
        error, begin = "", time.monotonic()
        try:
            self.send({"kind": "compile", "job": plain_job(job)})
            assert self._process.stdout is not None
            while (message := receive(self._process.stdout)) is not None:  # type: ignore[arg-type]
                if message["kind"] == "stage":
                    progress(job.gear, message["stage"])
                elif message["kind"] == "done":
                    progress(job.gear, "done")
                    return Outcome(index, Artifact(*message["artifact"]), None, time.monotonic() - begin)
                elif message["kind"] == "unknown":
                    return None
                else:
                    error = f"{message['error']}\n{message['trace']}"
                    break
        except (OSError, ValueError) as fault:
            error = f"the worker process broke: {fault}"
        if not error:
            error = f"the worker process ended with code {self._process.wait()}:\n{self._tail()}"
        progress(job.gear, "failed")
        return Outcome(index, None, CompileError(job.method, job.gear, error))

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it died with a message on the way
                self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
