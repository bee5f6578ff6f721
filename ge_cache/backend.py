"""The seam that CPU, CUDA and NPU share: what a backend is given and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.ge_cache.tensor_spec import TensorSpec

#: Runs one gear: a flat list of checked input tensors, then ints, in; a flat list of fresh output tensors out.
Runner = Callable[[list[torch.Tensor]], list[torch.Tensor]]
Stage = Callable[[str], None]


class CompileJob(Struct, frozen=True):
    """One gear to compile, as plain data, so that it can be sent to another process.

    `graph` is the form of `ge_cache.aten`; its placeholders are `inputs`, then numbers, then `attributes` in order.
    `repeats` lets a backend compile operations once that come again and again. `target` is what CPUs the code is for.
    `groups` are the sizes of the process groups that the graph communicates in, by role.
    """

    method: str
    gear: str
    graph: Any
    inputs: list[TensorSpec]
    attributes: dict[str, TensorSpec]
    options: dict[str, Any]
    threads: int
    repeats: bool = False
    target: str = "native"
    groups: list[int] = field(default_factory=list)

    @property
    def numbers(self) -> list[list[Any]]:
        """The numbers that the graph takes, as `ge_cache.graphs.number_inputs` says them."""
        return list((self.graph.get("symbols") or {}).get("numbers", []))

    @property
    def inputs_and_numbers(self) -> int:
        """How many placeholders come before those of the attributes."""
        return len(self.inputs) + len(self.numbers)


class Artifact(Struct, frozen=True):
    """What a backend made of one gear: a small plain header and named blobs.

    `conditions` are what the compiler assumed about dynamic dims, as `guards.gears.expressions`.
    """

    header: dict[str, Any]
    blobs: dict[str, bytes] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)


class StoredArtifact(Struct, frozen=True):
    """An artifact that was read back: digests are verified before `read` returns, or `file` is entered.

    `file` gives the name of the file that was verified, to be opened inside the `with`. `examples` gives live inputs of
    the call at hand (of any gear's sizes). `folder` names a folder of the entry where a backend may keep files of its
    own, which others cannot write; None when it may not. `keeps_compiled` is the user's `ge_cache`: whether the output
    of GE may lie there. `groups` are the names of the process groups that the graph communicates in, in this process.
    """

    header: dict[str, Any]
    read: Callable[[str], bytes]
    file: Callable[[str], AbstractContextManager[str]]
    examples: Callable[[], list[torch.Tensor]] = list
    folder: Callable[[str], Path] | None = None
    keeps_compiled: bool = False
    groups: Sequence[str] = ()


class Backend(ABC):
    """A compiler of static gear graphs; each states only what differs from the defaults."""

    name: str
    #: What compiles the jobs of a worker process, as `module:class` of a backend that is made without arguments; empty
    #: where compiling is quick, and is done in turn in the process that wants it.
    worker = ""
    #: Whether graphs with random operators may be compiled (they draw fresh numbers on each call).
    allows_random = False
    #: Whether one graph serves all gears, and the compiler's own runtime switches between them.
    takes_all_gears = False
    #: Whether a compiler takes the graph; else each of its operators is called as the process has it.
    compiles = True
    #: Whether graphs name process groups by role, and a load is told their names.
    groups_by_role = True
    #: Whether it is told in which orders the dims of results lie in memory: it would choose others for some.
    asks_orders = False
    #: Whether it keeps files of its own in the folder of an entry; only then do sizes and limits look for them.
    keeps_files = False
    #: What CPUs it compiles for; `native` for the one at hand, and where it compiles for none.
    target = "native"
    #: Whether the compiler is GE: what its options for the gears would say is logged.
    is_ge = False

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return what else identifies compiled code, as key components."""

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
        """Do in a worker process, before its first job, what every first compile for a target has to do."""
        return


def plain_spec(spec: TensorSpec) -> list[Any]:
    """Return a tensor spec as plain data."""
    return [list(spec.sizes), list(spec.strides), str(spec.dtype).removeprefix("torch."), str(spec.device)]


def spec_of_plain(plain: Any) -> TensorSpec:
    """Inverse of `plain_spec`."""
    sizes, strides, dtype, device = plain
    return TensorSpec(tuple(sizes), tuple(strides), getattr(torch, dtype), torch.device(device))


def plain_job(job: CompileJob) -> dict[str, Any]:
    """Return a job as plain data."""
    return {
        "method": job.method,
        "gear": job.gear,
        "graph": job.graph,
        "inputs": [plain_spec(spec) for spec in job.inputs],
        "attributes": [[name, plain_spec(spec)] for name, spec in job.attributes.items()],
        "options": job.options,
        "threads": job.threads,
        "repeats": job.repeats,
        "target": job.target,
        "groups": job.groups,
    }


def job_of_plain(plain: dict[str, Any]) -> CompileJob:
    """Inverse of `plain_job`."""
    return CompileJob(
        method=plain["method"],
        gear=plain["gear"],
        graph=plain["graph"],
        inputs=[spec_of_plain(spec) for spec in plain["inputs"]],
        attributes={name: spec_of_plain(spec) for name, spec in plain["attributes"]},
        options=plain["options"],
        threads=plain["threads"],
        repeats=plain["repeats"],
        target=plain["target"],
        groups=plain["groups"],
    )
