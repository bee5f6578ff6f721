"""Warns that a rank compiles alone, while the other ranks of its job may wait for it in a collective."""

from __future__ import annotations

import logging

from gearcache.serving.call.resolved import ResolvedMethod

logger = logging.getLogger("gearcache")
#: The method that this process has warned about.
_warned: list[str] = []


def warn_unagreed(method: ResolvedMethod) -> None:
    """Warn once per process that this rank compiles although the ranks of its job have not agreed."""
    world = method.ranks.world_size or 1
    if world == 1 or not method.serves or method.right.is_granted or _warned:
        return
    _warned.append(method.name)
    logger.warning(
        "`%s` is compiled by rank %s of %d by itself: ranks that hit go on meanwhile and wait in the next collective, "
        "until their watchdog ends the job; call gearcache.agree(model) on all ranks before the first collective",
        method.name,
        method.ranks.global_rank or 0,
        world,
    )
