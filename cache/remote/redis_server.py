"""`redis://host:port/number`: a Redis or Valkey server. An object is a key; all names are in a sorted set."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gearcache.cache.remote.protocol import CONNECT_SECONDS, Creates, Deadline, RemoteError
from gearcache.cache.remote.within import within

_Result = TypeVar("_Result")
#: A server that keeps everything in memory is no place for more.
MAX_VALUE = 64 << 20
#: Beyond any deadline: those are kept by `within`.
SOCKET_SECONDS = 600.0
_MOST_IDLE = 16
_PREFIX = "gearcache:"
#: A sorted set of all names, in their order.
_NAMES = "gearcache-names"


class RedisRemote:
    """A Redis database. Each operation has a connection; one that was cut off is not used again.

    Connections belong to the process that opened them: a forked child makes its own.
    """

    creates: Creates = "yes"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.label = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._url = url
        #: With the process that opened each.
        self._idle: deque[tuple[int, Any]] = deque(maxlen=_MOST_IDLE)

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        def read(client: Any) -> bytes | None:
            asked = client.pipeline(transaction=True)
            asked.exists(_PREFIX + name)
            asked.getrange(_PREFIX + name, 0, limit)
            is_there, data = asked.execute()
            if len(data) > limit:
                raise RemoteError(self.label, f"`{name}` has more than {limit} bytes")
            return data if is_there else None

        return self._do(deadline, read)

    def size(self, name: str, deadline: Deadline) -> int | None:
        def read(client: Any) -> int | None:
            asked = client.pipeline(transaction=True)
            asked.exists(_PREFIX + name)
            asked.strlen(_PREFIX + name)
            is_there, size = asked.execute()
            return size if is_there else None

        return self._do(deadline, read)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        if len(data) > MAX_VALUE:
            raise RemoteError(self.label, f"`{name}` has {len(data)} bytes, more than the {MAX_VALUE} of a value")

        def write(client: Any) -> bool:
            asked = client.pipeline(transaction=True)
            asked.set(_PREFIX + name, data, nx=create, px=None if lifetime is None else max(1, int(lifetime * 1000)))
            if lifetime is None:
                asked.zadd(_NAMES, {name: 0})
            return bool(asked.execute()[0])

        return self._do(deadline, write)

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        def read(client: Any) -> list[str]:
            found: list[str] = []
            start, is_more = 0, True
            while is_more and len(found) < limit:
                page = client.zrangebylex(_NAMES, f"[{prefix}", f"({prefix}\x7f", start=start, num=limit)
                start, is_more = start + len(page), len(page) == limit
                # A server under pressure drops objects, and not their names.
                asked = client.pipeline(transaction=False)
                for item in page:
                    asked.exists(_PREFIX + item.decode())
                found += [item.decode() for item, is_there in zip(page, asked.execute(), strict=True) if is_there]
            return found[:limit]

        return self._do(deadline, read)

    def delete(self, name: str, deadline: Deadline) -> None:
        def remove(client: Any) -> None:
            asked = client.pipeline(transaction=True)
            asked.delete(_PREFIX + name)
            asked.zrem(_NAMES, name)
            asked.execute()

        self._do(deadline, remove)

    def clock(self, written: str, deadline: Deadline) -> float | None:
        """Return the time of the server, in seconds since 1970."""

        def read(client: Any) -> float:
            seconds, microseconds = client.time()
            return float(seconds) + float(microseconds) / 1e6

        return self._do(deadline, read)

    def _do(self, deadline: Deadline, work: Callable[[Any], _Result]) -> _Result:
        held: list[Any] = []

        def run() -> _Result:
            held.append(self._client(deadline.check(self.label)))
            return work(held[0])

        def cut() -> None:
            for client in held:
                client.close()

        try:
            result = within(deadline, self.label, run, cut)
        except BaseException as error:
            cut()  # what was asked and not answered must not be read as the next answer
            if isinstance(error, RemoteError) or not isinstance(error, Exception):
                raise
            raise RemoteError(self.label, f"{type(error).__name__}: {error}") from error
        self._idle.extend((os.getpid(), client) for client in held)
        return result

    def _client(self, left: float) -> Any:
        """Return a client with a connection of its own, which nobody uses meanwhile."""
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        while self._idle:
            try:
                process, client = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if process == os.getpid():
                return client
        return Redis.from_url(
            self._url,
            socket_connect_timeout=min(CONNECT_SECONDS, left),
            socket_timeout=SOCKET_SECONDS,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=True,
        )
