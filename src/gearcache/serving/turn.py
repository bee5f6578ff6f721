"""The turn to compile among many hosts that lack the same: one has it, the others wait for what it stores."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from gearcache.cache.remote.lease import LIFE_SECONDS, Holder, Lease
from gearcache.cache.remote.names import lease_name
from gearcache.cache.remote.tier import Tier
from gearcache.cache.waits import waiting_time
from gearcache.errors import RemoteError
from gearcache.telemetry.history import History

logger = logging.getLogger("gearcache")
#: Seconds between two looks at what is stored: more each time.
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.5, 5.0, 1.5
#: Holders that a host waits for in vain.
_MOST_WAITED_FOR = 3
#: Seconds between two looks at the lease of another host.
_LOOK_SECONDS = 5.0


class Turn:
    """One process's turn at some work for a key."""

    def __init__(self, tier: Tier, key_digest: str, work: str, history: History, seconds: float, identity: str) -> None:
        self._tier = tier
        self._name = lease_name(key_digest, work)
        self._lease = Lease(tier, self._name, identity=identity)
        self._is_kept = False
        self._history = history
        self._seconds = seconds

    def wait(self, fetch: Callable[[], bool]) -> bool:
        """Return whether another host has stored what is wanted, which `fetch` tells; else it is this one's turn.

        At once where the tier has no leases, or where the wait has taken too long. What it raises leaves no turn.
        """
        try:
            return self._wait(fetch)
        except BaseException:
            self.end()
            raise

    def _wait(self, fetch: Callable[[], bool]) -> bool:
        if not self._tier.has_leases():
            return False
        begin, pause, ended = time.monotonic(), _FIRST_PAUSE, 0
        seconds = waiting_time(self._seconds)
        while not self._lease.take():
            # What they store is of no use here, for whatever reason: hosts that wait for each other in turn would
            # compile one after the other.
            if ended >= _MOST_WAITED_FOR:
                return False
            looked = seen = time.monotonic()
            while True:
                if time.monotonic() - begin > seconds:
                    logger.warning("%s: waited %g s for another host to compile it", self._history.name, seconds)
                    return False
                # Spread, so that hosts that began together do not ask together.
                time.sleep(waiting_time(pause * random.uniform(0.5, 1.0)))
                pause = min(pause * _GROWTH, _LONGEST_PAUSE)
                # What is stored ends the wait; the lease tells only whether anybody is at it.
                if fetch():
                    return self._waited(begin)
                if time.monotonic() - looked >= _LOOK_SECONDS:
                    looked = time.monotonic()
                    try:
                        holder = self._lease.holder()
                    except RemoteError:  # a request that fails ends no wait: the next look may tell
                        if self._tier.is_resting or time.monotonic() - seen > LIFE_SECONDS:
                            raise
                        continue
                    seen = looked
                    if holder is None:
                        ended += 1
                        break
                    self._tell(holder)
        if fetch():  # it was stored between the first look and this turn
            self.end()
            return self._waited(begin)
        self._history.note("lease", tier=self._tier.label, seconds=time.monotonic() - begin, detail="held")
        return False

    def _tell(self, holder: Holder) -> None:
        line = f"waiting for {holder}, which compiles it"
        if line not in self._history.lines:
            self._history.lines.append(line)
            logger.info("%s: %s", self._history.name, line)

    def _waited(self, begin: float) -> bool:
        self._history.note("lease", tier=self._tier.label, seconds=time.monotonic() - begin, detail="waited")
        return True

    def resume(self) -> None:
        """Keep the turn of a process that had it under the same identity, and has ended."""
        self._lease.resume()

    def keep_until_sent(self) -> None:
        """Keep the turn while what was compiled is sent; this process itself does not wait for that."""
        self._is_kept = True
        self._tier.being_sent[self._name] += 1

    def end(self) -> None:
        """Let another host have its turn, if this one has it."""
        self._lease.release()
        if self._is_kept:
            self._is_kept = False
            self._tier.being_sent[self._name] -= 1
