"""The interface of backends for CPU, CUDA and NPU: their input, a compile job, and their output, an artifact."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct, field

if TYPE_CHECKING:
    from gearcache.ge_cache.compile_job import CompileJob

#: Runs one gear: a flat list of checked input tensors, then ints, in; a flat list of fresh output tensors out.
Runner = Callable[[list[torch.Tensor]], list[torch.Tensor]]
Stage = Callable[[str], None]


class Artifact(Struct, frozen=True):
    """The compiled form of one gear: a small plain header and named blobs.

    `conditions` are the compiler's assumptions about dynamic dims, as `guards.gears.expressions`.
    """

    header: dict[str, Any]
    blobs: dict[str, bytes] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)


class StoredArtifact(Struct, frozen=True):
    """An artifact read from the store: digests are verified before `read` returns, or `file` is entered.

    `file` gives the name of the verified file, to be opened inside the `with`. `examples` gives live inputs of the
    current call (of any gear's sizes). `folder` names a folder of the entry where a backend may keep files of its own,
    which other users cannot write; None when it may not. `keeps_compiled` is the user's `ge_cache`: whether the output
    of GE may be stored there. `groups` are the names of the process groups that the graph communicates in, in this
    process.
    """

    header: dict[str, Any]
    #: The sha256 of each file.
    digests: Mapping[str, str]
    read: Callable[[str], bytes]
    file: Callable[[str], AbstractContextManager[str]]
    examples: Callable[[], list[torch.Tensor]] = list
    folder: Callable[[str], Path] | None = None
    keeps_compiled: bool = False
    groups: Sequence[str] = ()


class Backend(ABC):
    """A compiler of static gear graphs; each states only what differs from the defaults."""

    name: str
    #: The backend that compiles in worker processes, as `module:class` of a class that is made without arguments. Empty
    #: where compiling is quick: it then runs in turn in the process that needs it.
    worker = ""
    #: Whether graphs with random operators may be compiled (they draw fresh numbers on each call).
    allows_random = False
    #: Whether one graph serves all gears, and the compiler's own runtime switches between them.
    takes_all_gears = False
    #: Whether a compiler takes the graph; otherwise each operator is called as the process has it registered.
    compiles = True
    #: Whether graphs name process groups by role, and a load receives their names.
    groups_by_role = True
    #: Whether it receives dtypes and memory orders of results: on its own it would choose others for some results.
    asks_forms = False
    #: Whether it keeps files of its own in the folder of an entry; only then do sizes and limits look for them.
    keeps_files = False
    #: The CPUs for which it compiles; `native` for this one, and for backends that compile for none.
    target = "native"
    #: Whether the compiler is GE: then the equivalent options of GE for the gears are logged.
    is_ge = False

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return further key components that identify compiled code."""

    def check_compiler(self) -> None:
        """Raise `BackendUnavailable` when this host cannot compile (it may still load)."""
        return

    @abstractmethod
    def compile(self, job: CompileJob, stage: Stage) -> Artifact:
        """Compile one gear; may be called in a worker process. Raises whatever the compiler raises."""

    @abstractmethod
    def load(self, artifact: StoredArtifact, attributes: Mapping[str, torch.Tensor], device: torch.device) -> Runner:
        """Make a compiled gear callable; `attributes` are the live weights, bound without a copy."""

    def enter_worker(self, folder: str) -> None:
        """Begin to work in a new worker process, before its temporary files go to `folder`."""
        return

    def warm_up(self, threads: int, target: str, stage: Stage) -> None:
        """Do in a worker process, before its first job, the work that every first compile for a target needs."""
        return
