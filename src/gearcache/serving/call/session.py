"""The hook of prewarming in cached methods: while a session is open, it receives calls instead of the dispatch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gearcache.guards.gears.example_sizes import Special
    from gearcache.serving.call.call import Call
    from gearcache.serving.find.binding import Binding


class Preparable(Protocol):
    """The part of a cached method that a session needs."""

    @property
    def name(self) -> str:
        """`Class.method`, as messages name it."""

    @property
    def function(self) -> Callable[..., Any]:
        """The method itself."""

    def locked(self) -> AbstractContextManager[Any]:
        """Keep other threads out of the method's binding."""

    def call_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Bind the arguments of a call to the method's parameters, defaults applied."""

    def binding_for(self, call: Call) -> Binding:
        """Return the binding for the current global state."""

    def warm(self, /, *args: Any, **kwargs: Any) -> None:
        """Compile what a call needs; declared arguments need not be given."""

    def special_calls(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Return declared calls at sizes that need their own traces."""

    def declared_call(self, sizes: Special | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a declared call, at some sizes of its open dims."""

    def refresh(self) -> None:
        """Forget all bindings."""


class Session(Protocol):
    """Receives the calls of all cached methods of this process."""

    cache_dir: str | None
    jobs: int | None
    world_size: int | None
    rank: int | None

    def created(self, method: Preparable) -> None:
        """Record a new cached method."""

    def declared(self, method: Preparable) -> None:
        """Record a cached method with declared arguments: it needs no call."""

    def call(self, method: Preparable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call."""

    def warm(self, method: Preparable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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
