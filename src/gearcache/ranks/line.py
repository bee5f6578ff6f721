"""Accesses the store of a job in a separate thread, because a store on a hanging host never answers."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gearcache.errors import OptionError

T = TypeVar("T")
_Item = tuple[Callable[[], Any], "queue.SimpleQueue[Any]", threading.Event]
#: Seconds between two looks: the first pause, its growth factor, and the longest pause.
_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.0003, 1.3, 0.1
#: Seconds after a deadline at which the store counts as gone.
_PATIENCE = 1.0
#: How many times storing a value is retried if another rank changed it in the meantime.
_ATTEMPTS = 8


class TooLate(Exception):
    """The deadline has passed."""


class StoreGone(Exception):
    """The store of the job does not answer any more."""


class Abandoned(Exception):
    """The caller that waited for the work was interrupted."""


class Line:
    """The connection of one rank to the others of its job: texts under names, which all ranks read.

    Names belong to one meeting; names that begin with a slash belong to the job.
    """

    def __init__(self, open_store: Callable[[], Any], folder: str = "") -> None:
        """`open_store` is called in the thread: a connection to a dead host may never succeed.

        `folder` is the prefix of the names of the meeting.
        """
        self._open = open_store
        self._folder = folder
        self._process = os.getpid()
        self._store: Any = None
        self._has_many = False
        self._waiting: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._abandoned = threading.Event()
        threading.Thread(target=self._serve, name="gearcache agree", daemon=True).start()

    def _serve(self) -> None:
        while (item := self._waiting.get()) is not None:
            work, answer, self._abandoned = item
            try:
                if self._store is None:
                    self._store = self._open()
                    self._has_many = bool(getattr(self._store, "has_extended_api", lambda: False)())
                answer.put((work(), None))
            except BaseException as error:
                answer.put((None, error))

    def run(self, work: Callable[[], T], end: Callable[[], float]) -> T:
        """Return the result of `work`, which uses the store and checks the deadline `end` itself.

        `StoreGone` if the store does not answer after the deadline, or fails; `OptionError` in a forked process.
        """
        if os.getpid() != self._process:
            raise OptionError(
                f"agree: this process was forked inside of it from {self._process}, and is no rank of the job: end it "
                "with os._exit, or fork (and start workers) before agree or after it"
            )
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        abandoned = threading.Event()
        try:
            self._waiting.put((work, answer, abandoned))
            result, error = self._answer(answer, end)
        except BaseException:
            abandoned.set()
            raise
        if error is None:
            return result  # type: ignore[no-any-return]
        if isinstance(error, RuntimeError):  # torch's error for any failure of a store
            raise StoreGone(f"{type(error).__name__}: {error}".splitlines()[0]) from error
        raise error

    def _answer(self, answer: queue.SimpleQueue[Any], end: Callable[[], float]) -> Any:
        while True:
            seconds = end() + _PATIENCE - time.monotonic()
            try:
                return answer.get(timeout=max(0.0, seconds))
            except queue.Empty:
                if end() + _PATIENCE > time.monotonic():
                    continue
            try:  # this process may have been suspended: then the thread has not looked since
                return answer.get(timeout=_PATIENCE)
            except queue.Empty:
                raise StoreGone("it does not answer") from None

    def poll(
        self, look: Callable[[], T | None], end: Callable[[], float], meanwhile: Callable[[], None] | None = None
    ) -> T:
        """Return the first result of `look` that is not None; called by work. `TooLate` if there is none by `end`."""
        pause = _FIRST_PAUSE
        while (result := look()) is None:
            if self._abandoned.is_set():
                raise Abandoned
            if (seconds := end() - time.monotonic()) <= 0:
                raise TooLate
            if meanwhile is not None:
                meanwhile()
            time.sleep(min(pause, seconds))
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
        return result

    def tell(self, name: str, value: Any) -> None:
        """Store a value (JSON)."""
        self._store.set(self._full(name), json.dumps(value))

    def settle(self, name: str, value: Any, counts: Callable[[Any], bool]) -> Any:
        """Store a value, unless one that `counts` is stored; returns the stored value, which is equal for all ranks."""
        full_name, text = self._full(name), json.dumps(value)
        for _ in range(_ATTEMPTS):
            current = self._store.get(full_name).decode() if self._store.check([full_name]) else ""
            if current and counts(json.loads(current)):
                return json.loads(current)
            if self._store.compare_set(full_name, current, text).decode() == text:
                return value
        self._store.set(full_name, text)
        return value

    def has(self, names: Sequence[str]) -> bool:
        """Whether all of some names are stored."""
        return not names or bool(self._store.check([self._full(name) for name in names]))

    def ask(self, name: str) -> Any:
        """Return the value of a name; None if it is not stored."""
        return self.read([name])[0] if self.has([name]) else None

    def read(self, names: Sequence[str]) -> list[Any]:
        """Return the values of stored names."""
        full_names = [self._full(name) for name in names]
        if self._has_many and len(full_names) > 1:
            return [json.loads(text) for text in self._store.multi_get(full_names)]
        return [json.loads(self._store.get(name)) for name in full_names]

    def _full(self, name: str) -> str:
        return name if name.startswith("/") else f"/{self._folder}{name}"

    def close(self) -> None:
        """End the thread after it has finished its work."""
        self._waiting.put(None)
