"""The hook of prewarming in cached methods: while a session is open, it receives calls instead of the dispatch."""

from __future__ import annotations

from typing import Any, Protocol


class Session(Protocol):
    """Receives the calls of all cached methods of this process (`method` is a `CachedMethod`).

    Its settings replace those of the methods; None leaves a setting unchanged.
    """

    cache_dir: str | None
    jobs: int | None
    world_size: int | None
    rank: int | None

    def created(self, method: Any) -> None:
        """Record a new cached method."""

    def declared(self, method: Any) -> None:
        """Record a cached method with declared arguments: it needs no call."""

    def call(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call."""

    def warm(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Serve a call of `.warm`."""


_open: Session | None = None


def current() -> Session | None:
    """Return the open session of this process, if there is one."""
    return _open


def enter(session: Session) -> None:
    """Open a session; `RuntimeError` if one is open already: there is one session per process."""
    global _open
    if _open is not None:
        raise RuntimeError("gearcache.prewarm is already running in this process")
    _open = session


def leave() -> None:
    """Close the open session."""
    global _open
    _open = None
