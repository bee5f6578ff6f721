"""Reads the environment variables of a launcher such as `torchrun`; works without torch."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gearcache.errors import OptionError


class Launched(Struct, frozen=True):
    """The launcher's data about this process: its place in the job, and among the processes of this host."""

    rank: int
    world_size: int
    local_rank: int = 0
    local_size: int = 1


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
    if not environ.get("LOCAL_RANK") or not environ.get("LOCAL_WORLD_SIZE"):
        return Launched(rank, world)
    return Launched(rank, world, _number(environ, "LOCAL_RANK"), max(1, _number(environ, "LOCAL_WORLD_SIZE")))


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not (text.isascii() and text.isdigit()):
        raise OptionError(f"${name} is {text!r}; it must be a whole number of at least 0")
    return int(text)
