"""The program of a compile worker: jobs on stdin, events and artifacts on stdout.

A fresh interpreter rather than a fork: a fork of a process that has used OpenMP may hang, and spawning through
`multiprocessing` would run the user's main module again. `process.py` starts it.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gearcache.child_process import messages_as_output, receive, send
from gearcache.collection import rare_collection, uncollected_import

if TYPE_CHECKING:
    from gearcache.ge_cache.backend import Backend

#: Seconds in which a compiler that is asked to end can delete its partial files.
GRACE = 0.5
_WATCH_MILLISECONDS = 1000
_TRIES = 20
_WAIT_SECONDS = 0.11


def main(parent: int, life_line: int, folder: str, compiler: str) -> None:
    """Serve jobs until the parent closes the life line or dies.

    `compiler` is the `worker` of a backend; compilers put temporary files into `folder`.
    """
    keep_priority()
    output = messages_as_output()
    # A handler, so that this process survives the signal to its own group; compilers get the default again.
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=watch_parent, args=(parent, life_line), daemon=True).start()
    module, _, name = compiler.partition(":")
    with uncollected_import():
        backend: Backend = getattr(importlib.import_module(module), name)()
    backend.enter_worker(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    with rare_collection():
        _serve(backend, output)


def _serve(backend: Backend, output: IO[bytes]) -> None:
    import torch

    from gearcache.ge_cache.aten import MissingOperator
    from gearcache.ge_cache.compile_job import job_of_plain
    from gearcache.torch_state import set_settings

    def stage(name: str) -> None:
        send(output, {"kind": "stage", "stage": name})

    while True:
        try:
            message = receive(sys.stdin.buffer)
        except EOFError:
            return
        if message["kind"] == "prepare":
            try:
                backend.warm_up(message["threads"], message["target"], stage)  # the parent reads it with the first job
            except Exception as error:
                sys.stderr.write(f"gearcache worker: warm-up failed: {error}\n")
            continue
        job = job_of_plain(message["job"])
        torch.set_num_threads(max(1, job.threads))
        set_settings(job.settings)
        try:
            artifact = backend.compile(job, stage)
            send(output, {"kind": "done", "artifact": [artifact.header, artifact.blobs, artifact.conditions]})
        except Exception as error:
            import traceback

            trace = "".join(traceback.format_exception(error)[-6:])
            kind = "unknown" if isinstance(error, MissingOperator) else "failed"
            send(output, {"kind": kind, "error": f"{type(error).__name__}: {error}", "trace": trace})


def keep_priority() -> None:
    """Make the session of this process count as little as the process itself does.

    Linux gives each session an equal share of the processors, whatever the priority of its processes (`autogroup` in
    sched(7)): without this, two processes of the lowest priority made calls of their parent six times as slow.
    """
    lowered = os.nice(0)
    for _ in range(_TRIES if lowered > 0 else 0):
        try:
            Path("/proc/self/autogroup").write_text(str(lowered))
        except BlockingIOError:  # only one process of a host may do it in a tenth of a second
            time.sleep(_WAIT_SECONDS)
        except OSError:  # the kernel has no such groups
            return
        else:
            return


def watch_parent(parent: int, life_line: int) -> None:
    """End this process and its compilers once the parent is gone or closes the life line.

    The id of the parent is watched too: a fork of the parent may hold the other end of the life line.
    """
    line = select.poll()
    line.register(life_line, select.POLLIN | select.POLLHUP)
    while os.getppid() == parent and not line.poll(_WATCH_MILLISECONDS):
        pass
    group = os.getpgrp()
    if group == os.getpid():
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while _has_children() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(group, signal.SIGKILL)
    os._exit(1)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
