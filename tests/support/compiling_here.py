"""Compiles in the process of a test, with the precompiled headers of the compile workers."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gearcache.ge_cache.backend import Artifact
from gearcache.ge_cache.compile_job import CompileJob


def compile_here(patch: pytest.MonkeyPatch) -> None:
    """Let this process compile, as where no worker can be started: a worker would import Inductor, for seconds."""
    patch.setattr("gearcache.ge_cache.workers.pool._Slot.worker", lambda _: None)
    patch.setattr(
        "gearcache.ge_cache.inductor.backend.InductorBackend.compile", functools.partialmethod(_compile, patch)
    )


@functools.cache
def _own_folder(target: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"headers-{target}-")


def _compile(self: Any, patch: pytest.MonkeyPatch, job: CompileJob, stage: Any) -> Artifact:
    """What `InductorBackend.compile` does in a worker: g++ takes many seconds for the headers of each target."""
    from torch._inductor import codecache

    from gearcache.ge_cache.inductor.headers import SharedHeaders, shared_folder
    from gearcache.ge_cache.inductor.library import build_library, with_headers
    from gearcache.ge_cache.private_torch.codegen.inductor import settle_folder

    own = Path(_own_folder(job.target).name)  # that of Inductor would hold those of other trees and runs
    patch.setattr(codecache, "_HEADER_DIR", str(own))
    shared = Path(settle_folder(str(own / "inductor")), "gearcache-headers")
    headers = SharedHeaders(shared_folder(shared, job.target), own)
    artifact = build_library(job, stage, with_headers(headers, lambda: None))
    headers.give()
    return artifact
