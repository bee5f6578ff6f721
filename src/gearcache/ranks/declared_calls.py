"""The pieces that the ranks of a job agree on: the declared calls of the cached methods of a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.attaching.attachment import Attachment
from gearcache.errors import OptionError
from gearcache.serving.call import session
from gearcache.serving.call.method import CachedMethod


class Piece(Struct, eq=False):
    """One call of a cached method that all ranks must be able to serve."""

    method: CachedMethod
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: Whether the job needs it; declared calls at special sizes (1) may be impossible.
    is_needed: bool = True


class _Collecting(Struct):
    """Receives the calls of `.warm` in this thread while it is open; nothing is compiled."""

    pieces: list[Piece] = field(default_factory=list)
    cache_dir: str | None = None
    jobs: int | None = None
    world_size: int | None = None
    rank: int | None = None
    thread: int = field(default_factory=threading.get_ident)

    def created(self, method: CachedMethod) -> None:
        """Do nothing: the ranks agree on a method when it is warmed."""

    def declared(self, method: CachedMethod) -> None:
        """Do nothing."""

    def call(self, method: CachedMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the method itself for another thread; `OptionError` in this one."""
        if threading.get_ident() == self.thread:
            raise OptionError(f"agree: warm calls `{method.name}`; it may only call `.warm(...)`, which runs nothing")
        with torch.no_grad():
            return method.function(*args, **kwargs)

    def warm(self, method: CachedMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a call of this thread; another one prepares its own as ever."""
        if threading.get_ident() == self.thread:
            self.pieces.append(Piece(method, args, kwargs))
        else:
            method.prepare(method.call_of(args, kwargs))


def collect(items: Sequence[Any], warm: Callable[[], object] | None) -> list[Piece]:
    """Return the declared calls of the objects with a `warm` in a model, and those that `warm` names.

    `OptionError` for a method without known calls, and if there are none at all.
    """
    collecting = _Collecting()
    session.enter(collecting)
    try:
        if warm is not None:
            warm()
        warmed = {id(piece.method) for piece in collecting.pieces}
        for item in items:
            method = item.method if isinstance(item, Attachment) else item
            if id(method) in warmed:
                continue
            _warm(item)
            if isinstance(method, CachedMethod) and type(item) in (Attachment, type(method)):
                calls = method.special_calls()
                collecting.pieces += [Piece(method, args, kwargs, is_needed=False) for args, kwargs in calls]
    finally:
        session.leave()
    if not collecting.pieces:
        raise OptionError("agree: the model has no cached method; make them (cache_compile, attach) before")
    return collecting.pieces


def _warm(item: Any) -> None:
    try:
        item.warm()
    except TypeError as error:
        name = getattr(item, "name", type(item).__name__)
        raise OptionError(
            f"agree: nobody knows what calls of `{name}` look like ({error}); declare its arguments "
            f"(input_signature=, set_inputs), or give agree(…, warm=…) a function that calls its `.warm(...)`"
        ) from error
