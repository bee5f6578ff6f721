"""The tier `redis://host:port/number`: a Redis or Valkey server. An object is a key; a sorted set holds all names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gearcache.cache.remote.engines.protocol import (
    CONNECT_SECONDS,
    Creates,
    Deadline,
    Denied,
    RemoteError,
    TooLarge,
    check_name,
    is_name,
)
from gearcache.cache.remote.requests.deadline import within

_Result = TypeVar("_Result")
#: Limit of an object's bytes: a server that keeps everything in memory is not the place for more.
MAX_VALUE = 64 << 20
#: Socket timeout without a byte. `within` keeps the deadlines; this ends the threads that it leaves behind.
SOCKET_SECONDS = 10.0
#: Errors of the client for a user without the right, and for a replica.
_DENIED = ("NoPermissionError", "ReadOnlyError")
_PAGE = 1000
#: Of dropped objects whose names one list removes.
_MOST_FORGOTTEN = 100
_PREFIX = "gearcache:"
#: A sorted set of all names, in their order.
_NAMES = "gearcache-names"


class RedisRemote:
    """A Redis database. Its client keeps connections for later requests; a forked child makes its own."""

    creates: Creates = "yes"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.label = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._url = url
        self._client: Any = None

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        check_name(self.label, name)

        def read(client: Any) -> bytes | None:
            pipeline = client.pipeline(transaction=True)
            pipeline.exists(_PREFIX + name)
            pipeline.getrange(_PREFIX + name, 0, limit)
            pipeline.strlen(_PREFIX + name)
            is_there, data, size = pipeline.execute()
            if size > limit:
                raise TooLarge(self.label, f"`{name}` has {size} bytes, more than {limit}")
            if not isinstance(data, bytes) or len(data) != size:
                raise RemoteError(self.label, f"`{name}` is cut off")
            return data if is_there else None

        return self._do(deadline, read)

    def size(self, name: str, deadline: Deadline) -> int | None:
        check_name(self.label, name)

        def read(client: Any) -> int | None:
            pipeline = client.pipeline(transaction=True)
            pipeline.exists(_PREFIX + name)
            pipeline.strlen(_PREFIX + name)
            is_there, size = pipeline.execute()
            return int(size) if is_there else None

        return self._do(deadline, read)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        check_name(self.label, name)
        if len(data) > MAX_VALUE:
            raise TooLarge(self.label, f"`{name}` has {len(data)} bytes, more than the {MAX_VALUE} of a value")

        def write(client: Any) -> bool:
            pipeline = client.pipeline(transaction=True)
            pipeline.set(_PREFIX + name, data, nx=create, px=None if lifetime is None else max(1, int(lifetime * 1000)))
            if lifetime is None:
                pipeline.zadd(_NAMES, {name: 0})
            return bool(pipeline.execute()[0])

        return self._do(deadline, write)

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        check_name(self.label, prefix.removesuffix("/"))

        def read(client: Any) -> list[str]:
            present_names, dropped_names = list[str](), list[str]()
            # `0` is the character after the slash: every name that begins with the prefix is in between.
            start, end, is_more = f"[{prefix}".encode(), f"({prefix[:-1]}0", True
            while is_more and len(present_names) < limit:
                deadline.check(self.label)
                page = client.zrangebylex(_NAMES, start, end, start=0, num=_PAGE)
                is_more = len(page) == _PAGE
                start = b"(" + page[-1] if page else start
                # A server under memory pressure drops objects, but not their names.
                names = [item.decode("utf-8", "surrogateescape") for item in page]
                names = [name for name in names if name.startswith(prefix) and is_name(name)]
                pipeline = client.pipeline(transaction=False)
                for name in names:
                    pipeline.exists(_PREFIX + name)
                are_there = dict(zip(names, pipeline.execute(), strict=True))
                present_names += [name for name, is_there in are_there.items() if is_there]
                dropped_names += [name for name, is_there in are_there.items() if not is_there]
            _forget(client, dropped_names[:_MOST_FORGOTTEN])
            return present_names[:limit]

        return self._do(deadline, read)

    def delete(self, name: str, deadline: Deadline) -> None:
        check_name(self.label, name)

        def remove(client: Any) -> None:
            pipeline = client.pipeline(transaction=True)
            pipeline.delete(_PREFIX + name)
            pipeline.zrem(_NAMES, name)
            pipeline.execute()

        self._do(deadline, remove)

    def _do(self, deadline: Deadline, work: Callable[[Any], _Result]) -> _Result:
        def run() -> _Result:
            try:
                return work(self._connected())
            except RemoteError:
                raise
            except Exception as error:
                kind = Denied if type(error).__name__ in _DENIED else RemoteError
                raise kind(self.label, f"{type(error).__name__}: {error}") from error

        return within(deadline, self.label, run)

    def _connected(self) -> Any:
        """Return the client, which is made at the first request."""
        from redis import ConnectionPool, Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        if self._client is None:
            # A pool detects that the server closed an idle connection, and reconnects. Protocol 2, as with 3 a server
            # may send unrequested messages.
            pool = ConnectionPool.from_url(
                self._url,
                protocol=2,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=SOCKET_SECONDS,
                retry=Retry(NoBackoff(), 0),
                **({"ssl_check_hostname": True} if self._url.startswith("rediss:") else {}),
            )
            self._client = Redis(connection_pool=pool)
        return self._client


def _forget(client: Any, names: list[str]) -> None:
    """Remove the names of objects that the server has dropped, unless they are back by now."""
    from redis.exceptions import ResponseError

    def remove(pipeline: Any, name: str) -> None:
        is_back = pipeline.exists(_PREFIX + name)
        pipeline.multi()
        if not is_back:
            pipeline.zrem(_NAMES, name)

    with contextlib.suppress(ResponseError):  # this user may only read
        for name in names:
            client.transaction(lambda pipeline, name=name: remove(pipeline, name), _PREFIX + name)
