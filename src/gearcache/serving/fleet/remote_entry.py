"""The entry of a method in the tiers beyond this host: what to fetch instead of compiling, and what to send."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterable

from gearcache.cache.remote.engines.retrying import may_pass
from gearcache.cache.remote.names import EntryName, lease_name
from gearcache.cache.remote.outbox import outbox
from gearcache.cache.remote.tier import Tier, open_tiers
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.upload import upload_entry
from gearcache.errors import CacheError, RemoteError
from gearcache.readable.joined import covers_manifests
from gearcache.serving.find.entry import Entry
from gearcache.serving.fleet.compile_turn import CompileTurn
from gearcache.serving.fleet.tier_faults import TierFaults, fault_text
from gearcache.serving.fleet.tier_fetch import TierFetch, Wanted
from gearcache.telemetry.history import History

logger = logging.getLogger("gearcache")
_NO_KEY = (
    "nothing is sent there, as hosts would refuse it: this host signs nothing (`GEARCACHE_SIGNING_KEY_FILE`); mark the "
    "tier with `?unsigned=1` if all who can write there may run code here, or with `?read_only=1`"
)
#: Seconds before an upload in the background is tried again, at least: a tier that rests is asked when it may be.
_SEND_PAUSES = (5.0, 20.0, 60.0)


class RemoteEntry:
    """One entry in all tiers of a method. Not thread-safe: it is used under the lock of the key."""

    def __init__(self, entry: Entry, history: History, *, strict: bool, lock_timeout: float) -> None:
        self._entry = entry
        self._history = history
        self._faults = TierFaults(history, strict=strict)
        self._lock_timeout = lock_timeout
        self._name = EntryName(entry.key.safe_label, entry.key.digest, entry.layout.ranks)
        self._trust = Trust.from_environment(os.environ)
        self._tiers = open_tiers(entry.remotes, entry.layout)
        self._fetch = TierFetch(entry, self._name, self._tiers, self._trust, history, self._faults).fetch
        self._turn: CompileTurn | None = None
        #: Identifies this object and its copies in forked processes.
        self._identity = secrets.token_hex(8)

    def obtain(self, needs: Wanted) -> bool:
        """Fetch variants that serve a call; False if this process has to compile them.

        If a tier has leases, only one of many hosts has to, and the others wait for its result.
        """
        if self._fetch(needs, is_counted=True):
            return True
        tier = next((tier for tier in self._writable if tier.takes_writes), None)
        if tier is None or tier.being_sent[lease_name(self._entry.key.digest, needs.work)]:
            return False
        turn = self._turn_at(tier, needs.work)
        try:
            if turn.wait(lambda: self._fetch(needs)):
                return True
        except CacheError as error:
            self._faults.handle(tier, error)
            return False
        self._turn = turn
        return False

    def fetch(self, needs: Wanted) -> bool:
        """Fetch what the tiers have, without waiting for other hosts; returns whether that serves the call."""
        return self._fetch(needs, is_counted=True)

    def give_up(self) -> None:
        """Let another host compile: this one cannot, or has finished and sent it."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()

    def leave(self) -> None:
        """Leave the turn and the upload to the parent process, which calls `take_over`."""
        self._turn = None

    def take_over(self, work: str) -> None:
        """Send what a forked process has stored, and keep the turn that it had at some work."""
        tier = next((tier for tier in self._writable if tier.takes_writes), None)
        if tier is not None:
            self._turn = self._turn_at(tier, work)
            self._turn.resume()
        self.offer()

    def _turn_at(self, tier: Tier, work: str) -> CompileTurn:
        return CompileTurn(tier, self._entry.key.digest, work, self._history, self._lock_timeout, self._identity)

    def offer(self) -> None:
        """Send what is stored here to the tiers, in the background; hosts that wait for it may then fetch it.

        A tier that fails or rests is tried again, and the turn kept so long.
        """
        turn, self._turn = self._turn, None
        tiers, pauses = self._receiving, iter(_SEND_PAUSES)
        if turn is not None:
            turn.keep_until_sent()

        def end() -> None:
            if turn is not None:
                turn.end()

        def send() -> float | None:
            nonlocal tiers
            pause = None
            try:
                faults = self._send_to(tiers)
                tiers = [tier for tier, error in faults.items() if may_pass(error)]
                pause = next(pauses, None) if tiers else None
            finally:
                if pause is None:
                    end()
            return None if pause is None else max(pause, *(tier.rest_seconds for tier in tiers))

        if not outbox().add(send):
            logger.warning(
                "%s: nothing was sent, as too many uploads wait or no thread can be started; `gearcache push` sends it",
                self._history.name,
            )
            end()

    def send(self) -> list[str]:
        """Send what is stored here to all tiers, now; returns the problems."""
        return [fault_text(tier, error) for tier, error in self._send_to(self._receiving).items()]

    def _send_to(self, tiers: Iterable[Tier]) -> dict[Tier, CacheError]:
        """Send what is stored here to some tiers, and return the errors of those that did not take it."""
        faults: dict[Tier, CacheError] = {}
        for tier in tiers:
            begin = time.perf_counter()
            try:
                if tier in self._closed_tiers:
                    raise CacheError(_NO_KEY)
                if not tier.takes_writes:
                    raise RemoteError(tier.label, "it failed a moment ago, so nothing is sent there now")
                upload = upload_entry(tier, self._entry.layout, self._name, self._trust, covers_manifests)
            except CacheError as error:
                faults[tier] = error
                self._faults.warn(tier, error)
                continue
            seconds = time.perf_counter() - begin
            self._history.note("upload", tier=tier.label, seconds=seconds, bytes=upload.bytes)
            self._history.lines.append(f"sent to {tier.label}: {upload.bytes} bytes")
        return faults

    @property
    def reached(self) -> list[str]:
        """The names of the working tiers that receive what this host compiles."""
        return [tier.label for tier in self._writable if tier.takes_writes]

    @property
    def _writable(self) -> list[Tier]:
        """The tiers that receive what this host compiles."""
        return [tier for tier in self._receiving if tier not in self._closed_tiers]

    @property
    def _receiving(self) -> list[Tier]:
        """The tiers that are not read-only."""
        return [tier for tier in self._tiers if not tier.url.read_only]

    @property
    def _closed_tiers(self) -> list[Tier]:
        """Writable tiers that receive nothing, because hosts would refuse unsigned entries after waiting for them."""
        if self._trust.signs:
            return []
        return [tier for tier in self._tiers if not (tier.url.read_only or tier.url.unsigned)]
