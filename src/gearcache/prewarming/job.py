"""Acts as a rank of a distributed job, without the job: answers what a model asks of `torch.distributed`.

A process group of torch's backend `fake` gives the rank and the world size, and its collectives do nothing. A trace
records only the name and the ranks of a group, which are compared when an entry is loaded; a method that asks for
anything else, such as the backend, is refused by the trace. So a job with a real group loads what was made here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from gearcache.errors import OptionError
from gearcache.ge_cache.private_torch.jobs import start_alone


@contextmanager
def acting_as(rank: int | None, world_size: int | None) -> Iterator[None]:
    """Act as a rank of a job for a while: set the environment variables, and make a process group if there is none.

    `OptionError` if `init_process_group` is called with another rank or world size in the meantime.
    """
    if rank is None:
        yield
        return
    # If the rank is that of this process, the launcher has set its local rank.
    is_own = os.environ.get("RANK") == str(rank)
    local_rank = os.environ.get("LOCAL_RANK", str(rank)) if is_own else str(rank)
    variables = {"RANK": str(rank), "LOCAL_RANK": local_rank, "WORLD_SIZE": str(world_size)}
    with with_variables(variables), _group(rank, world_size or 1):
        yield


@contextmanager
def with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process, and restore them afterwards."""
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _group(rank: int, world_size: int) -> Iterator[None]:
    distributed = torch.distributed
    if world_size < 2 or not distributed.is_available():
        yield
        return
    if distributed.is_initialized():
        present = distributed.get_rank(), distributed.get_world_size()
        if present != (rank, world_size):  # the trace would record the number of another rank
            raise OptionError(
                f"prewarm: rank is {rank} of {world_size}, but this process is rank {present[0]} of {present[1]} of a "
                "job already: prewarm in a process that is in none"
            )
        yield
        return
    import torch.distributed.distributed_c10d as core

    original = core.init_process_group

    def init(*args: Any, **kwargs: Any) -> None:
        _check(args, kwargs, rank, world_size)
        if not core.is_initialized():  # the function has destroyed the existing group
            start_alone(original, rank, world_size)

    start_alone(original, rank, world_size)
    # A real group would wait for the other ranks, which do not exist.
    core.init_process_group = distributed.init_process_group = init
    try:
        yield
    finally:
        core.init_process_group = distributed.init_process_group = original
        if core.is_initialized():
            core.destroy_process_group()


def _check(args: tuple[Any, ...], kwargs: dict[str, Any], rank: int, world_size: int) -> None:
    arguments = {**dict(zip(("backend", "init_method", "timeout", "world_size", "rank"), args, strict=False)), **kwargs}
    for name, value in (("rank", rank), ("world_size", world_size)):
        argument = arguments.get(name, -1)
        if argument not in (-1, None, value):
            raise OptionError(
                f"init_process_group: {name} is {argument!r}, but the prewarm acts as rank {rank} of {world_size}"
            )
