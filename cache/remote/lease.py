"""A lease in a tier chooses one of many hosts to compile. It only saves work: a failing lease harms nothing.

Two holders of one lease compile the same graph twice, and both results are valid. So there is no fencing, and a late
beat is harmless.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, msgpack

from gearcache.cache.locks.host import boot_id
from gearcache.cache.remote.engines.protocol import Deadline, Remote, RemoteError
from gearcache.cache.remote.engines.retrying import again
from gearcache.cache.remote.tier import Tier
from gearcache.threads import started

#: A holder that shows no beat for this long counts as dead.
LIFE_SECONDS = 60.0
BEAT_SECONDS = 20.0
_REQUEST_SECONDS = 5.0
_MAX_SIZE = 4096


class Holder(Struct, frozen=True):
    """The holder of a lease, as stated in the lease."""

    identity: str
    host: str
    pid: int
    beat: int
    #: Seconds since 1970 by the holder's clock.
    at: float
    #: The scope of its process id: this boot of a kernel, and the namespace of processes.
    space: str = ""

    def encoded(self) -> bytes:
        """Return the bytes of a lease."""
        return msgpack.encode(self)

    @staticmethod
    def decoded(data: bytes) -> Holder | None:
        """Return the holder of a lease; None for invalid bytes."""
        with suppress(ValueError):
            return msgpack.decode(data, type=Holder)
        return None

    @property
    def has_ended(self) -> bool:
        """Return whether the holder was a process of this host that has ended."""
        return self.space == process_space() and not Path(f"/proc/{self.pid}").exists()

    def __str__(self) -> str:
        return f"process {self.pid} of {self.host}"


def process_space() -> str:
    """Return a text shared by processes that see each other by process id; without /proc a different text each time."""
    boot = boot_id()
    try:
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}" if boot else secrets.token_hex(8)
    except OSError:
        return secrets.token_hex(8)


class Lease:
    """One lease, as one process sees it. Not thread safe except for its own beats."""

    def __init__(
        self, tier: Tier, name: str, *, life: float = LIFE_SECONDS, beat: float = BEAT_SECONDS, identity: str = ""
    ) -> None:
        self.tier = tier
        self._name = name
        self._life = life
        self._beat_seconds = beat
        self._identity = identity or secrets.token_hex(8)
        self._ended = threading.Event()
        self._is_held = False
        self._beats: threading.Thread | None = None
        #: The last beat seen from another holder, and the `time.monotonic` of it.
        self._last_beat: tuple[bytes, float] = (b"", 0.0)

    def holder(self) -> Holder | None:
        """Return the other holder of the lease; None where it is free, or the holder showed no beat for too long."""
        data = self._ask(lambda remote, deadline: remote.get(self._name, _MAX_SIZE, deadline))
        if data is None:
            return None
        if not self._is_dead(data):
            return Holder.decoded(data)
        self._delete()
        return None

    def take(self) -> bool:
        """Take the lease if it is free, and return whether this process has it now. Raises `RemoteError`."""
        if self._ask(self._create):
            self.resume()
            return True
        return False

    def _create(self, remote: Remote, deadline: Deadline) -> bool:
        own_data = self._own_holder(0).encoded()
        tries = itertools.count()

        def create() -> bool:
            # A failed create may have succeeded, with only its answer lost.
            is_again = next(tries) > 0
            return (is_again and self._holds(remote, deadline)) or remote.put(
                self._name, own_data, deadline, create=True, lifetime=self._life
            )

        return again(create, deadline)

    def resume(self) -> None:
        """Show beats from now on, also for a process that took the lease under this identity and has ended.

        Where no thread can be started, the lease ends by its age.
        """
        self._is_held = True
        beats = threading.Thread(target=self._beat, daemon=True, name="gearcache-lease")
        self._beats = beats if started(beats) else None

    def release(self) -> None:
        """Give the lease up, if it is held; raises nothing."""
        self._ended.set()
        if not self._is_held:
            return
        self._is_held = False
        if self._beats is not None:
            self._beats.join(_REQUEST_SECONDS)
            self._beats = None
        with suppress(RemoteError):
            if self._ask(self._holds):
                self._delete()

    def _delete(self) -> None:
        self._ask(lambda remote, deadline: remote.delete(self._name, deadline))

    def _holds(self, remote: Remote, deadline: Deadline) -> bool:
        data = remote.get(self._name, _MAX_SIZE, deadline)
        holder = Holder.decoded(data) if data is not None else None
        return holder is not None and holder.identity == self._identity

    def _is_dead(self, data: bytes) -> bool:
        now = time.monotonic()
        if data != self._last_beat[0]:
            self._last_beat = data, now
        holder = Holder.decoded(data)
        # Clocks of hosts differ, so the time alone is enough only for a very old lease.
        is_old = holder is None or time.time() - holder.at > 10 * self._life
        return is_old or now - self._last_beat[1] > self._life or (holder is not None and holder.has_ended)

    def _beat(self) -> None:
        number = 0
        while not self._ended.wait(self._beat_seconds):
            number += 1
            with suppress(RemoteError):
                if not self._beat_once(number):
                    return

    def _beat_once(self, number: int) -> bool:
        """Show a beat; False where another process has taken the lease."""
        if not self._ask(self._holds):
            return False
        data = self._own_holder(number).encoded()
        self._ask(lambda remote, deadline: remote.put(self._name, data, deadline, lifetime=self._life))
        return True

    def _own_holder(self, beat: int) -> Holder:
        return Holder(self._identity, socket.gethostname(), os.getpid(), beat, time.time(), process_space())

    def _ask(self, work: Any) -> Any:
        return self.tier.write(lambda remote: work(remote, Deadline.after(_REQUEST_SECONDS)), is_telling=False)
