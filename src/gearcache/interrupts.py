"""Re-raises exceptions of a program's signal handlers, such as request timeouts: they are not faults of the cache.

Any line may raise them, as any class: `TimeoutError` is an `OSError`. If one was caught, or caused another error, it is
raised again. A function that catches what an object of the program, or a file, raises calls `raise_interrupt` first.
"""

from __future__ import annotations

import functools
import signal
import types
from collections.abc import Iterator
from typing import Any


def raise_interrupt(error: BaseException) -> None:
    """Raise the exception of a signal handler, if it is this error or led to it; else return.

    An exception that a caller is handling did not lead to it: the program calls a method after a timeout.
    """
    is_first = error.__context__ is None and error.__cause__ is None
    if is_first and (error.__traceback__ is None or error.__traceback__.tb_next is None):
        return  # raised where it was caught, as the dispatch meets it often
    traced = [(cause, codes) for cause in _chain(error) if (codes := _codes_below(cause.__traceback__))]
    if not traced:
        return
    handlers = {code for number in _signals() if (code := _code(signal.getsignal(number))) is not None}
    for cause, codes in traced:
        if not handlers.isdisjoint(codes):
            raise cause


@functools.cache
def _signals() -> tuple[int, ...]:
    """Return the numbers of all signals: Python takes longer to list them than to ask for their handlers."""
    return tuple(map(int, signal.valid_signals()))


def _code(handler: Any) -> types.CodeType | None:
    if handler is None or isinstance(handler, int):  # none, or the system's
        return None
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    code = getattr(handler, "__code__", None)
    if code is None:
        code = getattr(getattr(type(handler), "__call__", None), "__code__", None)  # noqa: B004
    return code if isinstance(code, types.CodeType) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors that led to it."""
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue:
        link = queue.pop(0)
        if link is not None and not any(link is other for other in seen):
            if link is not error and _is_handled_above(link, error):
                continue
            seen.append(link)
            queue += [link.__cause__, link.__context__]
            yield link


def _is_handled_above(link: BaseException, error: BaseException) -> bool:
    """Whether a caller of the function that caught an error handles another exception, and so has called it."""
    if link.__traceback__ is None or error.__traceback__ is None:
        return False
    frame = error.__traceback__.tb_frame.f_back
    while frame is not None and frame is not link.__traceback__.tb_frame:
        frame = frame.f_back
    return frame is not None


def _codes_below(traceback: types.TracebackType | None) -> set[types.CodeType]:
    """Return the code of all functions that an exception went through, below the one that caught it."""
    codes = set()
    while traceback is not None and (traceback := traceback.tb_next) is not None:
        codes.add(traceback.tb_frame.f_code)
    return codes
