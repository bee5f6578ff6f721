"""Runs the calls of a case under `torch.compile` in one process: returns the number of graphs, or the error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch._dynamo

from benchmarks.fuzz.case import Case
from benchmarks.fuzz.varying.worlds import PeerWorld

_MANY = 1000


def peer_graphs(case: Case, folder: Path) -> int | None:
    """Return the number of graphs; None if `torch.compile` refuses a call."""
    with _world(case, folder, 0) as world:
        return world.graphs if _served(case, world) else None


def peer_error(case: Case, folder: Path, number: int, index: int) -> BaseException | None:
    """Return the exception of one step of one launch under `torch.compile`, after the earlier steps of that launch."""
    with _world(case, folder, number) as world:
        error = None
        for place, step in enumerate(case.phases[number].steps[: index + 1]):
            error = world.take(step.text, place)
        return error


@contextmanager
def _world(case: Case, folder: Path, number: int) -> Iterator[PeerWorld]:
    file = folder / f"{case.name}.py"
    file.write_text(case.phases[number].source)
    torch._dynamo.reset()
    limits = torch._dynamo.config.patch(recompile_limit=_MANY, accumulated_recompile_limit=_MANY)
    with limits, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = PeerWorld(case.name, file)
        try:
            yield world
        finally:
            world.close()
            torch._dynamo.reset()


def _served(case: Case, world: PeerWorld) -> bool:
    """Execute all steps except the builds of later launches, which would be other modules."""
    is_built = False
    for phase in case.phases[:-1] if len(case.phases) > 1 else case.phases:
        for index, step in enumerate(phase.steps):
            if step.label == "build" and is_built:
                continue
            is_built = True
            error = world.take(step.text, index)
            if isinstance(error, torch._dynamo.exc.TorchDynamoException):
                return False
    return True
