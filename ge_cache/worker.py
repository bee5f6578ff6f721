"""A compile worker: `python -m gearcache.ge_cache.worker`, jobs on stdin, events and artifacts on stdout.

A fresh interpreter rather than a fork: a fork of a process that has used OpenMP may hang, and spawning through
`multiprocessing` would run the user's main module again. Messages are length-prefixed msgpack of plain data, from
and to the parent only.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

_LENGTH = 8


def send(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write one message."""
    data = msgpack.packb(message, use_bin_type=True)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def receive(stream: BinaryIO) -> dict[str, Any] | None:
    """Read one message; None at the end of the stream."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    size = int.from_bytes(head, "little")
    return msgpack.unpackb(stream.read(size), raw=False, strict_map_key=False)  # type: ignore[no-any-return]


def main() -> None:
    """Serve jobs until stdin closes."""
    # Anything that a compiler prints must not reach the message stream.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import torch

    from gearcache.ge_cache.backend import job_of_plain
    from gearcache.ge_cache.inductor import InductorBackend
    from gearcache.ge_cache.inductor_library import prepare

    while (message := receive(sys.stdin.buffer)) is not None:
        if message["kind"] == "prepare":
            # Takes what every first compile pays (imports, instruction set probes, precompiled headers).
            try:
                prepare(message["threads"])
            except Exception as error:
                sys.stderr.write(f"gearcache worker: warm-up failed: {error}\n")
            continue
        job = job_of_plain(message["job"])
        torch.set_num_threads(max(1, job.threads))
        backend = InductorBackend()
        try:
            with tempfile.TemporaryDirectory(prefix="gearcache-") as workdir:
                artifact = backend.compile(
                    job, Path(workdir), lambda stage: send(output, {"kind": "stage", "stage": stage})
                )
            send(output, {"kind": "done", "artifact": [artifact.header, artifact.blobs, artifact.conditions]})
        except Exception as error:
            import traceback

            trace = "".join(traceback.format_exception(error)[-6:])
            kind = "unknown" if isinstance(error, LookupError) else "failed"
            send(output, {"kind": kind, "error": f"{type(error).__name__}: {error}", "trace": trace})


if __name__ == "__main__":
    main()
