"""The turn to compile among many hosts that lack the same: one has it, the others wait for its result."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from gearcache.cache.remote.lease import LIFE_SECONDS, Holder, Lease
from gearcache.cache.remote.names import lease_name
from gearcache.cache.remote.tier import Tier
from gearcache.errors import RemoteError
from gearcache.telemetry.history import History
from gearcache.threads import waiting_time

logger = logging.getLogger("gearcache")
#: Seconds between two looks at what is stored; the pause grows each time.
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.5, 5.0, 1.5
#: How many holders of the turn a host waits for in vain.
_MOST_WAITED_FOR = 3
#: Seconds between two looks at the lease of another host.
_LOOK_SECONDS = 5.0


class CompileTurn:
    """One process's turn at some work for a key."""

    def __init__(self, tier: Tier, key_digest: str, work: str, history: History, seconds: float, identity: str) -> None:
        self._tier = tier
        self._name = lease_name(key_digest, work)
        self._lease = Lease(tier, self._name, identity=identity)
        self._is_kept_until_sent = False
        self._history = history
        self._seconds = seconds

    def wait(self, fetch: Callable[[], bool]) -> bool:
        """Wait for another host; returns True if `fetch` has found its result, False if it is this process's turn.

        Returns at once if the tier has no leases; also ends if the wait takes too long. If it raises, it holds no turn.
        """
        try:
            return self._wait(fetch)
        except BaseException:
            self.end()
            raise

    def _wait(self, fetch: Callable[[], bool]) -> bool:
        if not self._tier.has_leases():
            return False
        begin, pause, ended_turns = time.monotonic(), _FIRST_PAUSE, 0
        seconds = waiting_time(self._seconds)
        while not self._lease.take():
            # The results of these holders are of no use here, for whatever reason: hosts that wait for each other in
            # turn would compile one after the other.
            if ended_turns >= _MOST_WAITED_FOR:
                return False
            last_look = last_answer = time.monotonic()
            while True:
                if time.monotonic() - begin > seconds:
                    logger.warning("%s: waited %g s for another host to compile it", self._history.name, seconds)
                    return False
                # Randomised, so that hosts that began together do not ask together.
                time.sleep(waiting_time(pause * random.uniform(0.5, 1.0)))
                pause = min(pause * _GROWTH, _LONGEST_PAUSE)
                # A stored result ends the wait; the lease only shows whether another host is working on it.
                if fetch():
                    return self._note_wait(begin)
                if time.monotonic() - last_look >= _LOOK_SECONDS:
                    last_look = time.monotonic()
                    try:
                        holder = self._lease.holder()
                    except RemoteError:  # a failed request does not end the wait: the next look may succeed
                        if not self._tier.takes_writes or time.monotonic() - last_answer > LIFE_SECONDS:
                            raise
                        continue
                    last_answer = last_look
                    if holder is None:
                        ended_turns += 1
                        break
                    self._log_holder(holder)
        if fetch():  # it was stored between the first look and this turn
            self.end()
            return self._note_wait(begin)
        self._history.note("lease", tier=self._tier.label, seconds=time.monotonic() - begin, detail="held")
        return False

    def _log_holder(self, holder: Holder) -> None:
        line = f"waiting for {holder}, which compiles it"
        if line not in self._history.lines:
            self._history.lines.append(line)
            logger.info("%s: %s", self._history.name, line)

    def _note_wait(self, begin: float) -> bool:
        self._history.note("lease", tier=self._tier.label, seconds=time.monotonic() - begin, detail="waited")
        return True

    def resume(self) -> None:
        """Keep the turn of an ended process that had it under the same identity."""
        self._lease.resume()

    def keep_until_sent(self) -> None:
        """Keep the turn while the result is sent; this process itself does not wait for that."""
        self._is_kept_until_sent = True
        self._tier.being_sent[self._name] += 1

    def end(self) -> None:
        """Let another host have the turn, if this one has it."""
        self._lease.release()
        if self._is_kept_until_sent:
            self._is_kept_until_sent = False
            self._tier.being_sent[self._name] -= 1
