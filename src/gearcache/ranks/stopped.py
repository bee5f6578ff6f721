"""The exception of an agreement that fails."""

from __future__ import annotations

GONE = "the store of the job cannot be reached any more: who hosts it may have ended; no rank knows of the others"


class Stopped(Exception):
    """The ranks do not agree: the rank that is the cause, and why."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank, self.reason = rank, reason


def silent(timeout: float) -> str:
    """Return the reason for a first rank that does not answer; `timeout` in seconds."""
    return f"it did not answer within {timeout:g} s, and it is the one that decides"
