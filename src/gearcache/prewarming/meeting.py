"""Divides a prewarm among the processes of one `torchrun`: each announces its work, all compute the same division.

They meet in the store of the launcher, before any of them compiles; none waits for the compile of another. Processes on
other hosts, or with another cache, divide their work separately, because their results would not be stored here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from gearcache.cache.locks.host import boot_id
from gearcache.errors import PrewarmNotShared
from gearcache.prewarming.launched import Launched
from gearcache.prewarming.share import LeftTo, divide_among
from gearcache.ranks.job import Place, start_of_job
from gearcache.ranks.meeting import Meeting
from gearcache.ranks.process_start import process_start
from gearcache.ranks.stopped import Stopped

_ABOUT = "the division of a prewarm"


class ShareMeeting:
    """One division of work by all processes of a launcher."""

    def __init__(self, process: Launched, root: Path, timeout: float) -> None:
        """`root` is the root of the cache; `timeout` is the number of seconds to wait for the others."""
        self._process = process
        self._root = root
        self._timeout = timeout

    def divide(self, work: Mapping[str, int]) -> LeftTo:
        """Return which process compiles an entry; `PrewarmNotShared` if a process is late or has failed."""
        own, meeting = self._process.rank, self._meeting()
        try:
            meeting.open(_ABOUT)
            offer = {"cache": _identity(self._root), "work": dict(work)}
            offers = meeting.decide(offer, lambda votes: {"do": "go", "offers": votes})["offers"]
        except Stopped as stop:
            text = f"process {stop.rank} of {self._process.world_size}: {stop.reason}"
            raise PrewarmNotShared(text) from stop
        finally:
            meeting.close()
        cache = offers[own]["cache"]
        compilers = divide_among({rank: each["work"] for rank, each in enumerate(offers) if each["cache"] == cache})

        def left_to(name: str) -> str:
            process = compilers.get(name, own)  # an entry that was not announced is compiled here
            return "" if process == own else f"process {process}"

        return left_to

    def give_up(self, reason: str) -> None:
        """Report that this process cannot announce its work, so that the others do not wait for it."""
        meeting = self._meeting()
        with suppress(Stopped):  # another one has failed before, or is late
            meeting.open(_ABOUT)  # the first process may host the store, and come later
            meeting.leave(f"it failed: {reason[:500]}")
        meeting.close()

    def _meeting(self) -> Meeting:
        process, options = self._process, {"timeout": timedelta(seconds=self._timeout)}

        def open_store() -> Any:
            store, _, _ = next(rendezvous("env://", process.rank, process.world_size, **options))
            # A restarted job must not read the data of the previous one.
            return PrefixStore(f"gearcache/prewarm/{start_of_job(os.environ)}", store)

        return Meeting(Place(1, open_store, process_start()), process.rank, process.world_size, self._timeout)


def _identity(root: Path) -> str:
    """Return a text that identifies this cache on this host."""
    return sha256("\0".join((socket.gethostname(), boot_id(), os.path.realpath(root))).encode()).hexdigest()
