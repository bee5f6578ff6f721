"""Faults of tiers: a tier never breaks a call, unless `strict`; each kind of fault is logged once."""

from __future__ import annotations

import logging

from gearcache.cache.remote.tier import Tier
from gearcache.errors import CacheError, RemoteError
from gearcache.telemetry.history import History

logger = logging.getLogger("gearcache")
_WITHOUT = "%s; the model is served without it (see `gearcache doctor --tiers`; `gearcache push` sends what is missing)"
#: Warnings that this process has logged: one for each tier and kind of fault.
_warned: set[tuple[str, str]] = set()


class TierFaults:
    """The faults of the tiers of one method."""

    def __init__(self, history: History, *, strict: bool) -> None:
        self._history = history
        self._strict = strict

    def handle(self, tier: Tier, error: CacheError) -> None:
        """Handle a fault of a tier: it never breaks a call, unless `strict`; it is counted, and logged once."""
        if self._strict:
            raise error
        self.warn(tier, error)

    def warn(self, tier: Tier, error: CacheError) -> None:
        """Count and log a fault."""
        text = fault_text(tier, error)
        self._history.note("fault", tier=tier.label, detail=str(error))
        if text not in self._history.lines:
            self._history.lines.append(text)
        kind = type(error).__name__ if not isinstance(error, RemoteError) else ""
        if (tier.label, kind) not in _warned:
            _warned.add((tier.label, kind))
            logger.warning(_WITHOUT, text)


def fault_text(tier: Tier, error: CacheError) -> str:
    """Return an error with the name of its tier."""
    return str(error) if isinstance(error, RemoteError) else f"tier {tier.label}: {error}"
