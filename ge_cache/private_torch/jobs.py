"""torch internals that simulate process groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


def start_alone(init_process_group: Callable[..., Any], rank: int, world_size: int) -> None:
    """Make this process a rank whose collectives do nothing: the backend `fake`, which torch's own tests use."""
    # Importing the module registers the backend.
    from torch.testing._internal.distributed.fake_pg import FakeStore

    init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())


@contextmanager
def acted_groups(sizes: Mapping[str, int]) -> Iterator[None]:
    """Simulate process groups of some names and sizes for a while, with this process as the first rank.

    Compilers look them up, but run nothing in them; a real job of this process is unaffected.
    """
    if not sizes:
        yield
        return
    from torch._C._distributed_c10d import HashStore, ProcessGroup

    registry = torch._C._distributed_c10d
    groups = {name: ProcessGroup(HashStore(), 0, size) for name, size in sizes.items()}  # registries hold them weakly
    try:
        for name, group in groups.items():
            registry._register_process_group(name, group)  # type: ignore[arg-type]
        yield
    finally:
        for name in groups:
            registry._unregister_process_group(name)  # type: ignore[arg-type]
