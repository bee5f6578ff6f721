"""Reads the environment variables of a launcher such as `torchrun`; works without torch."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gearcache.errors import OptionError


class Launched(Struct, frozen=True):
    """The launcher's data about this process: rank, world size, and whether the processes can meet."""

    rank: int
    world_size: int
    can_meet: bool
    #: Number of processes on this host.
    local_size: int


def launched(environ: Mapping[str, str]) -> Launched | None:
    """Return the values of `RANK` and `WORLD_SIZE`; None if they are not set, or if there is only one process.

    `OptionError` for invalid values.
    """
    if not environ.get("RANK") or not environ.get("WORLD_SIZE"):
        return None
    rank, world = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    if rank >= world:
        raise OptionError(f"$RANK is {rank}, but $WORLD_SIZE is {world}; it must be 0 to {world - 1}")
    if world == 1:
        return None
    local = _number(environ, "LOCAL_WORLD_SIZE") if environ.get("LOCAL_WORLD_SIZE") else 1
    can_meet = bool(environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"))
    return Launched(rank, world, can_meet, max(local, 1))


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not (text.isascii() and text.isdigit()):
        raise OptionError(f"${name} is {text!r}; it must be a whole number of at least 0")
    return int(text)
