"""Coordinates the ranks of a job that export together, through the store of their process group."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from gearcache.errors import CompileError

logger = logging.getLogger("gearcache")
#: Seconds until a rank logs which ranks it waits for, and until it gives up.
SAYS_AFTER, GIVES_UP_AFTER = 30.0, 1800.0
_POLLS = (0.005, 0.2)
_ROOT = "gearcache/dynamo_export"
_FAILED = "failed"


class ExportRanks:
    """One export of all ranks of the default process group, or of a single process if `rank` is None.

    `store` is None if there are no other ranks to ask.
    """

    def __init__(self, method: str, store: Any = None, rank: int | None = None, world: int = 1) -> None:
        self.rank, self.world = rank, world
        self._method = method
        self._store = store
        # Each rank counts its own exports: all of them call dynamo_export in the same order.
        self._call = store.add(f"{_ROOT}/calls/{rank}", 1) if store is not None else 0

    def tell(self, step: str, value: Any) -> None:
        """Send a value (JSON) to the other ranks."""
        if self._store is not None:
            self._store.set(self._key(self.rank, step), json.dumps(value))

    def ask(self, step: str, ranks: Iterable[int]) -> dict[int, Any]:
        """Wait for values of other ranks. `CompileError` if one has failed, `TimeoutError` if one never answers."""
        values: dict[int, Any] = {}
        pending = sorted(set(ranks) - {self.rank}) if self._store is not None else []
        started, pause, has_said = time.monotonic(), _POLLS[0], False
        while pending:
            for rank in tuple(pending):
                if self._store.check([self._key(rank, step)]):
                    values[rank] = json.loads(self._store.get(self._key(rank, step)))
                    pending.remove(rank)
                else:
                    self.check(rank)
            waited = time.monotonic() - started
            names = ", ".join(map(str, pending))
            if pending and waited > GIVES_UP_AFTER:
                raise TimeoutError(
                    f"dynamo_export: rank {self.rank} has waited {waited:.0f} s for rank {names}; each rank of the "
                    "default process group has to call dynamo_export"
                )
            if pending and waited > SAYS_AFTER and not has_said:
                has_said = True
                logger.warning("dynamo_export: rank %s waits for rank %s, which has to call it too", self.rank, names)
            if pending:
                time.sleep(pause)
                pause = min(pause * 1.5, _POLLS[1])
        return values

    def check(self, rank: int) -> None:
        """Raise `CompileError` if another rank has failed."""
        if self._store is not None and self._store.check([self._key(rank, _FAILED)]):
            cause = json.loads(self._store.get(self._key(rank, _FAILED)))
            raise CompileError(self._method, "of the export", f"rank {rank}: {cause}")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Report a failure of this rank to the other ranks."""
        try:
            yield
        except BaseException as error:
            with suppress(Exception):  # the store itself may have failed
                self.tell(_FAILED, f"{type(error).__name__}: {error}")
            raise

    def in_one_folder(self, target: Path, work: Path) -> dict[int | None, Path]:
        """Return the work folders of all ranks that export into this `target`, including this one's, by rank.

        Waits until all ranks have converted their graphs. A folder of the same name may be on another host: only ranks
        that share a folder can see one another's work folders.
        """
        self.tell("converted", [str(target), str(work)])
        folders: dict[int | None, Path] = {self.rank: work}
        for rank, (place, folder) in self.ask("converted", range(self.world)).items():
            if place == str(target) and Path(folder).is_dir():
                folders[rank] = Path(folder)
            elif place == str(target):
                self.check(rank)  # it reports a failure before it removes its folder
        return folders

    def _key(self, rank: int | None, step: str) -> str:
        return f"{_ROOT}/{self._call}/{rank}/{step}"


def all_ranks(method: str) -> ExportRanks:
    """Return the ranks of the job of this process."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ExportRanks(method)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    # A `fake` group has no other ranks.
    is_alone = world == 1 or torch.distributed.get_backend() == "fake"
    group: Any = torch.distributed.group.WORLD
    return ExportRanks(method, None if is_alone else group.get_group_store(), rank, world)
