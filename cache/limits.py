"""What a cache may hold."""

from __future__ import annotations

from msgspec import Struct

#: Default size limit of a cache in bytes: without one, the disks of a fleet grow until an operator notices.
DEFAULT_MAX_SIZE = 10 * 10**9


class Limits(Struct, frozen=True):
    """What a cache may hold: bytes in all, and seconds since an entry was last used; None means unlimited."""

    max_size: int | None = None
    max_age: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_size", "max_age"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} is {value!r}; it must be at least 0, or None for no limit")

    def __bool__(self) -> bool:
        return self.max_size is not None or self.max_age is not None


NO_LIMITS = Limits()
