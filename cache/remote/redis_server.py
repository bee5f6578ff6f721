"""`redis://host:port/number`: a Redis or Valkey server. An object is a key; names of a prefix are in a set."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gearcache.cache.remote.protocol import CONNECT_SECONDS, Deadline, RemoteError
from gearcache.cache.remote.within import within

_Result = TypeVar("_Result")
#: A server that keeps everything in memory is no place for more.
MAX_VALUE = 64 << 20
#: Beyond any deadline: those are kept by `within`.
SOCKET_SECONDS = 600.0
_MOST_IDLE = 16
_PREFIX = "gearcache:"
_FOLDERS = "gearcache-names:"


class RedisRemote:
    """A Redis database. Each operation has a connection; one that was cut off is not used again."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.label = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._url = url
        self._idle: deque[Any] = deque(maxlen=_MOST_IDLE)

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        def read(client: Any) -> bytes | None:
            size = client.strlen(_PREFIX + name)
            if size > limit:
                raise RemoteError(self.label, f"`{name}` has {size} bytes, more than {limit}")
            return client.get(_PREFIX + name)  # type: ignore[no-any-return]

        return self._do(deadline, read)

    def put(self, name: str, data: bytes, deadline: Deadline, *, create: bool = False) -> bool:
        if len(data) > MAX_VALUE:
            raise RemoteError(self.label, f"`{name}` has {len(data)} bytes, more than the {MAX_VALUE} of a value")

        def write(client: Any) -> bool:
            stored = bool(client.set(_PREFIX + name, data, nx=create))
            client.sadd(_FOLDERS + name.rpartition("/")[0] + "/", name)
            return stored

        return self._do(deadline, write)

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        def read(client: Any) -> list[str]:
            found: list[str] = []
            for item in client.sscan_iter(_FOLDERS + prefix, count=limit):
                found.append(item.decode())
                if len(found) >= limit:
                    break
            # A server under pressure drops objects, and not their names.
            return sorted(name for name in found if client.exists(_PREFIX + name))

        return self._do(deadline, read)

    def delete(self, name: str, deadline: Deadline) -> None:
        def remove(client: Any) -> None:
            client.delete(_PREFIX + name)
            client.srem(_FOLDERS + name.rpartition("/")[0] + "/", name)

        self._do(deadline, remove)

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
        self._idle.extend(held)
        return result

    def _client(self, left: float) -> Any:
        """Return a client with a connection of its own, which nobody uses meanwhile."""
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        with contextlib.suppress(IndexError):
            return self._idle.pop()
        return Redis.from_url(
            self._url,
            socket_connect_timeout=min(CONNECT_SECONDS, left),
            socket_timeout=SOCKET_SECONDS,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=True,
        )
