"""Finds the job that this process is a rank of, and the store through which its ranks communicate."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct

_ROOT = "gearcache/agree"
_IMPORTED = time.time()
#: Index of the start in `/proc/self/stat`, after the program's name: ticks since the host started.
_START_FIELD = 19


class _Connection:
    """A separate connection to a store, because a waiting rank blocks its connection; kept, as opening one is slow."""

    def __init__(self, store: Any, since: float | None = None) -> None:
        """`since`: older values belong to an earlier job with the same store; seconds since the epoch."""
        self._of_job = store
        self._own: Any = None
        self.numbers = itertools.count(1)
        self.since = _process_start() if since is None else since

    def open(self) -> Any:
        """Return the store; a connection to a dead host takes as long as the job's timeout, or never returns."""
        if self._own is None:
            self._own = self._of_job.clone()
        return self._own


#: The store of the present job, and its connection.
_present: list[tuple[Any, _Connection]] = []
#: The process group inherited from the parent of this fork: this process is not a rank of it.
_inherited: list[Any] = []


def _inherit() -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        _inherited[:] = [distributed.group.WORLD]


os.register_at_fork(after_in_child=_inherit)


class Place(Struct, frozen=True):
    """The place of one meeting: its number, and a function that opens the store."""

    number: int
    open: Callable[[], Any]
    #: Seconds since the epoch: older values belong to an earlier start of the job.
    since: float


class Job(Struct, frozen=True):
    """One initialised process group of two or more processes."""

    rank: int
    world: int
    connection: _Connection

    def next_meeting(self) -> Place:
        """Return the place of the next meeting; all ranks have their meetings in the same order."""
        place = meeting_place(os.environ, self.world)
        distributed: Any = torch.distributed
        connection = self.connection
        return Place(
            next(connection.numbers), lambda: distributed.PrefixStore(place, connection.open()), connection.since
        )


def meeting_place(environ: Mapping[str, str], world: int) -> str:
    """Return the store prefix of the ranks of a job, distinct from that of an earlier start or of another size."""
    return f"{_ROOT}/{start_of_job(environ)}/{world}"


def start_of_job(environ: Mapping[str, str]) -> str:
    """Return a text that separates one start of a job from another with the same store, from torchelastic."""
    return f"{environ.get('TORCHELASTIC_RUN_ID', '')}/{environ.get('TORCHELASTIC_RESTART_COUNT', '')}"


def present_job() -> Job | None:
    """Return the job of this process.

    None outside a job, in a job with one process, with a fake process group, and in a process forked from a rank.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    rank, world = distributed.get_rank(), distributed.get_world_size()
    if world == 1 or distributed.get_backend() == "fake":
        return None
    group: Any = distributed.group.WORLD
    if any(group is other for other in _inherited):
        return None
    store = group.get_group_store()
    if not (_present and _present[0][0] is store):
        # A second job of this process may use the store of the first one.
        _present[:] = [(store, _Connection(store, time.time() if _present else None))]
    return Job(rank, world, _present[0][1])


def _process_start() -> float:
    """Return when this process started, or a little later, in seconds since the epoch."""
    try:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        ticks = int(fields[_START_FIELD])
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        start = time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):  # not on Linux
        return _IMPORTED
    return start if ticks > 0 else _IMPORTED
