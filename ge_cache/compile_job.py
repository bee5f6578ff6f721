"""One gear to compile, and its form as plain data, in which a worker process receives it."""

from __future__ import annotations

from typing import Any

import torch
from msgspec import Struct, field

from gearcache.torch_state import settings

Sizes = tuple[Any, ...]


class GearInput(Struct, frozen=True):
    """Sizes and strides of one input of a gear (ints; `None` marks a dynamic dim), dtype and device."""

    sizes: Sizes
    strides: Sizes
    dtype: torch.dtype
    device: torch.device


class CompileJob(Struct, frozen=True):
    """One gear to compile.

    `graph` is the form of `ge_cache.aten`; its placeholders are `inputs`, then numbers, then `attributes` in order.
    `repeats` lets a backend compile repeated operations once. `target` names the CPUs for which the code is made.
    `groups` are the sizes of the process groups that the graph communicates in, by role. `settings` are those of torch
    (`gearcache.torch_state`): they decide what an operator gives whose dtype the graph does not name.
    """

    method: str
    gear: str
    graph: Any
    inputs: list[GearInput]
    attributes: dict[str, GearInput]
    options: dict[str, Any]
    threads: int
    repeats: bool = False
    target: str = "native"
    groups: list[int] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=settings)

    @property
    def numbers(self) -> list[list[Any]]:
        """The numbers that the graph takes, in the form of `ge_cache.graphs.number_inputs`."""
        return list((self.graph.get("symbols") or {}).get("numbers", []))

    @property
    def inputs_and_numbers(self) -> int:
        """Number of placeholders before those of the attributes."""
        return len(self.inputs) + len(self.numbers)


def plain_spec(spec: GearInput) -> list[Any]:
    """Return a tensor spec as plain data."""
    return [list(spec.sizes), list(spec.strides), str(spec.dtype).removeprefix("torch."), str(spec.device)]


def spec_of_plain(plain: Any) -> GearInput:
    """Inverse of `plain_spec`."""
    sizes, strides, dtype, device = plain
    return GearInput(tuple(sizes), tuple(strides), getattr(torch, dtype), torch.device(device))


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
        "settings": job.settings,
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
        settings=plain["settings"],
    )
