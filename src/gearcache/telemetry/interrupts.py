"""Re-raises exceptions of a program's signal handlers, such as request timeouts: they are not faults of the cache.

Any line may raise them. If one was caught, or caused another error, it is raised again.
"""

from __future__ import annotations

import signal
import types
from collections.abc import Iterator
from typing import Any


def raise_interrupt(error: BaseException) -> None:
    """Raise the exception of a signal handler, if it is this error or led to it; else return."""
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    if not handlers:
        return
    for cause in _chain(error):
        if any(code in handlers for code in _codes(cause.__traceback__)):
            raise cause


def _code(handler: Any) -> types.CodeType | None:
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
            seen.append(link)
            queue += [link.__cause__, link.__context__]
            yield link


def _codes(traceback: types.TracebackType | None) -> Iterator[types.CodeType]:
    while traceback is not None:
        yield traceback.tb_frame.f_code
        traceback = traceback.tb_next
