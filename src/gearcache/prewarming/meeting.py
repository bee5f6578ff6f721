"""Divides a prewarm among the processes of one `torchrun`: each announces its work, all compute the same division.

They meet in the store of the launcher, before any of them compiles; none waits for the compile of another. Processes on
other hosts, or with another cache, divide their work separately, because their results would not be stored here.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from gearcache.cache.locks.host import boot_id
from gearcache.errors import PrewarmNotShared
from gearcache.prewarming.launched import Launched
from gearcache.prewarming.share import LeftTo, divide_among
from gearcache.ranks.job import start_of_job


class ShareMeeting:
    """One division of work by all processes of a launcher."""

    def __init__(self, process: Launched, root: Path, timeout: float) -> None:
        """`root` is the root of the cache; `timeout` is the number of seconds to wait for the others."""
        self._process = process
        self._root = root
        self._timeout = timeout
        self._store: Any = None

    def divide(self, work: Mapping[str, int]) -> LeftTo:
        """Return which process compiles an entry; `PrewarmNotShared` if a process is late or has failed."""
        announcements = self._exchange({"cache": _identity(self._root), "work": dict(work)})
        for rank, announcement in announcements.items():
            if "failed" in announcement:
                raise PrewarmNotShared(f"process {rank} of {self._process.world_size} failed: {announcement['failed']}")
        cache = announcements[self._process.rank]["cache"]
        compilers = divide_among(
            {
                rank: announcement["work"]
                for rank, announcement in announcements.items()
                if announcement["cache"] == cache
            }
        )

        def left_to(name: str) -> str:
            process = compilers.get(name, self._process.rank)  # an entry that was not announced is compiled here
            return "" if process == self._process.rank else f"process {process}"

        return left_to

    def give_up(self, reason: str) -> None:
        """Report that this process cannot announce its work, so that the others do not wait for it."""
        self._exchange({"failed": reason[:500]})

    def _exchange(self, announcement: dict[str, Any]) -> dict[int, dict[str, Any]]:
        process = self._process
        limit = time.monotonic() + self._timeout
        try:
            if self._store is None:
                options = {"timeout": timedelta(seconds=self._timeout)}
                store, _, _ = next(rendezvous("env://", process.rank, process.world_size, **options))
                # A restarted job must not read the data of the previous one.
                self._store = PrefixStore(f"gearcache/prewarm/{start_of_job(os.environ)}", store)
            self._store.set(f"said/{process.rank}", json.dumps(announcement))
            texts = self._gather("said", limit)
            # The process that hosts the store may not end before all have read it.
            self._store.set(f"read/{process.rank}", b"1")
            if process.rank == 0:
                self._gather("read", limit)
        except torch.distributed.DistError as error:
            raise PrewarmNotShared(f"the processes of this job cannot meet: {error}") from error
        return {rank: json.loads(text) for rank, text in texts.items()}

    def _gather(self, what: str, limit: float) -> dict[int, bytes]:
        names = {rank: f"{what}/{rank}" for rank in range(self._process.world_size)}
        try:
            self._store.wait(list(names.values()), timedelta(seconds=max(limit - time.monotonic(), 0.001)))
        except torch.distributed.DistStoreError:
            missing = [str(rank) for rank, name in names.items() if not self._store.check([name])]
            raise PrewarmNotShared(
                f"after {self._timeout:.0f} s nothing was heard of process {', '.join(missing) or 'none'} "
                f"of {self._process.world_size}"
            ) from None
        return {rank: self._store.get(name) for rank, name in names.items()}


def _identity(root: Path) -> str:
    """Return a text that identifies this cache on this host."""
    return sha256("\0".join((socket.gethostname(), boot_id(), os.path.realpath(root))).encode()).hexdigest()
