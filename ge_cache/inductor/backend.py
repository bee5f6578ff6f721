"""The `inductor` backend: one AOTInductor shared object per gear, weights outside.

`package_constants_in_so=False` leaves the weights out of the object; `user_managed` binding then makes every gear and
the live module share one copy, and in-place weight updates take effect. The object is loaded straight from the blob
store with `torch._C._aoti`, which needs no `torch._inductor`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec import msgpack

from gearcache.errors import BackendUnavailable
from gearcache.ge_cache.backend import Artifact, Backend, Runner, Stage, StoredArtifact
from gearcache.ge_cache.inductor import targets
from gearcache.ge_cache.inductor.artifact_names import CONSTANTS, EXTERN, LIBRARY
from gearcache.ge_cache.inductor.idle_runners import run_with
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.evidence.names import a_type

if TYPE_CHECKING:
    from gearcache.ge_cache.compile_job import CompileJob
    from gearcache.ge_cache.inductor.headers import SharedHeaders

logger = logging.getLogger("gearcache")

#: The sha256 of the files that were loaded, by device and inode.
_loaded: dict[tuple[int, int], str] = {}
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
#: Bump when the same graph and options compile to different code; older entries then miss.
RECIPE = 8
#: Variables of Inductor that affect where and when it works, but not its output (torch 2.13 `_inductor/config.py`).
_HARMLESS_VARIABLES = {
    "BUNDLED_AUTOTUNE_REMOTE_CACHE",
    "AUTOTUNE_REMOTE_CACHE",
    "CACHE_DIR",
    "COMPILE_THREADS",
    "COMPILE_WORKER_WAIT_TIMEOUT",
    "CPP_CACHE_PRECOMPILE_HEADERS",
    "FILE_LOCK_TIMEOUT",
    "FX_GRAPH_CACHE",
    "FX_GRAPH_CACHE_DEFAULT",
    "FX_GRAPH_REMOTE_CACHE",
    "QUIESCE_ASYNC_COMPILE_POOL",
    "REDIS_HOST",
    "REDIS_PORT",
    "REDIS_URL",
    "WORKER_LOGPATH",
    "WORKER_START",
    "WORKER_SUPPRESS_LOGGING",
}


class InductorBackend(Backend):
    """Compiles with AOTInductor and loads without Inductor."""

    name = "inductor"
    worker = "gearcache.ge_cache.inductor.backend:InductorBackend"
    asks_forms = True

    def __init__(self, options: Mapping[str, Any] | None = None, target: str = targets.NATIVE) -> None:
        """Take the user's settings; `ValueError` for one that a cached graph cannot follow, or a target of other hosts.

        So code is never loaded, or looked up, for a target that this host cannot run.
        """
        targets.check_target(target)
        self.target = target
        self._options = options or {}
        #: In a worker: the folder where workers share headers, and its own headers from the first compile on.
        self._folder: Path | None = None
        self._headers: SharedHeaders | None = None
        if self._options:
            from gearcache.ge_cache.inductor.options import check_options

            check_options(self._options, target)

    def fingerprint(self) -> dict[str, Any]:
        """Return the components of the code besides the graph and the options.

        These are the recipe, the target (for `native`, which is `-march=native`, all instruction sets of the CPU), the
        thread count baked into it, and Inductor's variables. Values that a program assigns to `torch._inductor.config`
        are left out, and no compile follows them.
        """
        cpu: dict[str, Any] = {"target": self.target}
        if self.target == targets.NATIVE:
            capability = torch.backends.cpu.get_cpu_capability()
            cpu = {"capability": capability, "instructions": list(targets.cpu_flags())}
        return {
            "recipe": RECIPE,
            **cpu,
            "threads": torch.get_num_threads(),
            "environment": inductor_variables(os.environ),
        }

    def check_compiler(self) -> None:
        """Look for a C++ compiler; `BackendUnavailable` says what to do without one.

        `ValueError` for a setting that the installed Inductor does not know.
        """
        compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
        if not any(shutil.which(name) for name in compilers):
            raise BackendUnavailable(
                self.name,
                f"no C++ compiler was found ({', '.join(compilers)}); install one, set `CXX`, use backend='eager', "
                "or bring a cache that a host with a compiler has made",
            )
        if "torch._inductor.config" in sys.modules:
            from gearcache.ge_cache.private_torch.codegen.inductor import unassigned_settings

            for name in sorted(unassigned_settings().keys() - self._options.keys()):
                logger.warning(
                    "the program has assigned to `torch._inductor.config.%s`, which cached graphs do not follow: "
                    "pass it as `options` to `cache_compile`, so that it is part of the key",
                    name,
                )
        if self._options:
            from gearcache.ge_cache.inductor.options import check_names
            from gearcache.ge_cache.private_torch.codegen.inductor import known_settings

            check_names(self._options, known_settings())

    def compile(self, job: CompileJob, stage: Stage) -> Artifact:
        """Build the shared object; takes seconds to minutes and a C++ compiler."""
        if self._folder is None:
            from gearcache.ge_cache.inductor.library import build_library

            return build_library(job, stage)
        headers = self._worker_headers(job.target, stage)
        from gearcache.ge_cache.inductor.library import build_library, with_headers

        artifact = build_library(job, stage, with_headers(headers, lambda: stage("headers")))
        headers.give()
        return artifact

    def enter_worker(self, folder: str) -> None:
        """Settle the folder of Inductor's files, and in it the folder of the shared headers."""
        from gearcache.ge_cache.private_torch.codegen.inductor import settle_folder

        self._folder = Path(settle_folder(f"{folder}/inductor"), "gearcache-headers")

    def warm_up(self, threads: int, target: str, stage: Stage) -> None:
        """Import Inductor and prepare precompiled headers, in a worker; stages `import` and `headers`."""
        headers = self._worker_headers(target, stage)
        from gearcache.ge_cache.inductor.library import prepare

        prepare(headers, lambda: stage("headers"), threads, target)

    def _worker_headers(self, target: str, stage: Stage) -> SharedHeaders:
        if self._headers is None:
            stage("import")
            from gearcache.ge_cache.inductor.headers import SharedHeaders, shared_folder
            from gearcache.ge_cache.private_torch.codegen.inductor import header_folder

            assert self._folder is not None
            self._headers = SharedHeaders(shared_folder(self._folder, target), header_folder())
        return self._headers

    def load(self, artifact: StoredArtifact, attributes: Mapping[str, torch.Tensor], device: torch.device) -> Runner:
        """Load the shared object and bind the live weights, without a copy."""
        bound = artifact.header["bound"]
        constants: dict[str, torch.Tensor] = {}
        if any(kind == "constant" for kind, _ in bound.values()):
            from gearcache.ge_cache.aten import decode_tensor

            stored = msgpack.decode(artifact.read(CONSTANTS))
            constants = {name: decode_tensor(plain, device) for name, plain in stored.items()}
        for name, weight in attributes.items():
            if private_core.has_own_dispatch(weight):
                raise TypeError(f"{name} is {a_type(weight)}, which has no memory of its own")
            if weight.is_conj() or weight.is_neg():
                raise TypeError(f"{name} is conjugated or negated lazily, and compiled code reads its memory")
        # Detached: the same memory, but the weight itself can still be swapped (`torch.utils.swap_tensors`).
        values = {
            internal: attributes[name].detach() if kind == "attribute" else constants[name]
            for internal, (kind, name) in bound.items()
        }
        described = artifact.read(EXTERN) if artifact.header.get("extern") else b""
        with artifact.file(LIBRARY) as stored:
            library, digest = stored, artifact.digests[LIBRARY]
            status = os.stat(stored)
            # The loader recognises a loaded file by its inode, which the server of a network file system may give to
            # another file once this one is removed.
            known_digest = _loaded.setdefault((status.st_dev, status.st_ino), digest)
            if known_digest != digest or os.statvfs(stored).f_flag & os.ST_NOEXEC:
                from gearcache.ge_cache.inductor.executable import name_of_copy

                library = name_of_copy(stored, digest)
            code = (digest, described, tuple(artifact.groups))
            return _Bound(run_with(code, functools.partial(_runner, artifact, library, stored, described), values))


def inductor_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the environment that Inductor, and so a worker, may read as settings of the code."""
    prefix = "TORCHINDUCTOR_"
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(prefix) and name.removeprefix(prefix) not in _HARMLESS_VARIABLES
    }


def _runner(artifact: StoredArtifact, library: str, error_name: str, described: bytes) -> Any:
    """Load a shared object; `error_name` is its name in errors."""
    if not described and not artifact.groups:
        return _load(library, error_name)
    from gearcache.cache.files.trust import opened_folder
    from gearcache.ge_cache.workers.scratch import scratch_folder

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        if artifact.groups:
            from gearcache.ge_cache.inductor.groups import described_with_names, library_file, with_names

            library_data = with_names(artifact.read(LIBRARY), artifact.groups)
            library = stack.enter_context(library_file(library_data))
            described = described_with_names(described, artifact.groups) if described else described
        # The loader looks for the description beside the object, under its name.
        descriptor, name = stack.enter_context(opened_folder(folder))
        os.symlink(library, LIBRARY, dir_fd=descriptor)
        if described:
            with os.fdopen(os.open(Path(LIBRARY).stem + ".json", _NEW_FILE, 0o600, dir_fd=descriptor), "wb") as file:
                file.write(described)
        return _load(f"{name}/{LIBRARY}", error_name)


def _load(name: str, library: str) -> Any:
    try:
        return private_core.aoti_runner(name)
    except RuntimeError as error:
        raise RuntimeError(str(error).replace(name, os.path.realpath(library))) from error


class _Bound:
    """A runner that takes numbers as tensors of one int64 or float64."""

    __slots__ = ("run",)
    is_native = True

    def __init__(self, run: Runner) -> None:
        self.run = run

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return self.run(inputs)
