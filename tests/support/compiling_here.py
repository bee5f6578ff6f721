"""Compiles in the process of a test, with the precompiled headers of the compile workers."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest


def compile_here(patch: pytest.MonkeyPatch) -> None:
    """Let this process compile, as where no worker can be started: a worker would import Inductor, for seconds."""
    patch.setattr("gearcache.ge_cache.workers.pool._Slot.worker", lambda _: None)
    patch.setattr(
        "gearcache.ge_cache.inductor.backend.InductorBackend.warm_up", functools.partialmethod(_warm_up, patch)
    )


@functools.cache
def _own_folder(target: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"headers-{target}-")


def _warm_up(self: Any, patch: pytest.MonkeyPatch, threads: int, target: str, stage: Any) -> None:
    """What `InductorBackend.warm_up` does in a worker: g++ takes many seconds for the headers of each target."""
    del stage
    from torch._inductor import codecache

    from gearcache.ge_cache.inductor.headers import SharedHeaders, shared_folder
    from gearcache.ge_cache.inductor.library import prepare
    from gearcache.ge_cache.inductor.targets import NATIVE
    from gearcache.ge_cache.private_torch.codegen.inductor import settle_folder

    own = Path(_own_folder(target).name)  # that of Inductor would hold those of other trees and runs
    patch.setattr(codecache, "_HEADER_DIR", str(own))
    if self._headers is None:
        shared = Path(settle_folder(str(own / "inductor")), "gearcache-headers")
        self._headers = SharedHeaders(shared_folder(shared, target), own)
        # Few tests have another target: the first one makes its headers as it compiles.
        self._headers.provide(functools.partial(prepare, threads, target) if target == NATIVE else lambda: None)
