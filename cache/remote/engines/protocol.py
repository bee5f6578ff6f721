"""The protocol of an engine of a tier; `tests/cache/remote/engines/test_engines.py` has the laws of all engines."""

from __future__ import annotations

import time
from typing import Literal, Protocol

from msgspec import Struct

from gearcache.errors import Denied as Denied
from gearcache.errors import Late as Late
from gearcache.errors import RemoteError as RemoteError
from gearcache.errors import TooLarge as TooLarge

#: Seconds to connect.
CONNECT_SECONDS = 0.5
Creates = Literal["yes", "no", "perhaps"]
_MOST_PART_BYTES = 200
_MOST_NAME_BYTES = 900


class Deadline(Struct, frozen=True):
    """The moment, by `time.monotonic`, at which an operation is abandoned."""

    moment: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline that ends after some seconds."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, never below 0."""
        return max(0.0, self.moment - time.monotonic())

    def check(self, label: str) -> float:
        """Return the seconds that are left; `Late` where none are."""
        if (seconds := self.left) <= 0.0:
            raise Late(label, "it took longer than its budget")
        return seconds


def is_name(name: str) -> bool:
    """Whether a text is the name of an object in every engine: parts with slashes between, which stay below the root.

    No part begins with a dot: file systems put files of their own there.
    """
    if not name.isprintable() or len(name.encode()) > _MOST_NAME_BYTES:
        return False
    parts = name.split("/")
    return all(part and part[0] != "." and len(part.encode()) <= _MOST_PART_BYTES for part in parts)


def check_name(label: str, name: str) -> None:
    """Raise `RemoteError` where a text is not the name of an object."""
    if not is_name(name):
        raise RemoteError(label, f"`{name}` is no name of an object")


class Remote(Protocol):
    """Objects under names with slashes. Each method raises `RemoteError`, at the latest soon after its deadline.

    Objects other than leases are never changed: a name determines the bytes. Safe to use from several threads. Results
    are whole: an object that is cut off or incomplete is an error. Names must satisfy `is_name`; others are refused,
    and left out of lists.
    """

    #: Its name in messages and counts; without passwords.
    label: str

    @property
    def creates(self) -> Creates:
        """Return whether only one of several hosts that `create` an object succeeds; "perhaps": only a try shows it."""

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        """Return an object of at most `limit` bytes; None where it is missing."""

    def size(self, name: str, deadline: Deadline) -> int | None:
        """Return the size of an object in bytes; None where it is missing."""

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        """Store an object; with `create` only where it is missing, False if it existed.

        An engine that supports lifetimes drops it after `lifetime` seconds.
        """

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        """Return up to `limit` names of objects that begin with a prefix, which ends with a slash."""

    def delete(self, name: str, deadline: Deadline) -> None:
        """Remove an object, if it exists."""
