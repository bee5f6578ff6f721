"""Implements `torch.compiler.set_stance` for cached methods.

A stance is read when a call has to compile, which costs the other calls nothing. `force_eager` concerns all calls: it
exchanges the `__call__` of every cached method when the stance changes.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from gearcache.errors import OptionError
from gearcache.ge_cache.private_torch import shapes as private_shapes
from gearcache.threads import freed_in_forks

FORCE_EAGER = "force_eager"


#: The cached methods of this process.
_followers: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = freed_in_forks(threading.RLock())
_watched = False


def follow(method: Any) -> None:
    """Notify a cached method of every change of stance from now on, for as long as it exists."""
    global _watched
    with _lock:
        _followers.add(method)
        if not _watched:
            private_shapes.watch_stance(_notify_followers)
            _watched = True


def followers() -> list[Any]:
    """Return all cached methods of this process."""
    with _lock:
        return list(_followers)


def present_stance() -> str:
    """Return the stance of `torch.compile`; a forced backend `eager` counts as `force_eager`.

    `OptionError` for another forced backend, which a graph on disk cannot follow.
    """
    stance, backend = private_shapes.stance()
    if backend is None:
        return stance
    if backend == "eager":
        return FORCE_EAGER
    raise OptionError(
        f"torch.compiler.set_stance: force_backend is {str(backend)!r}; for a cached method only 'eager' is possible"
    )


def _notify_followers() -> None:
    for method in followers():
        method.follow_stance()
