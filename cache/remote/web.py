"""`https://host/path`: a web server that gives files, as a bucket's website or nginx does; nothing is stored there.

What lies below a key is named by its file `index.txt`, a name a line, which `gearcache push` writes last.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import quote, urlsplit

from gearcache.cache.remote.protocol import CONNECT_SECONDS, Creates, Deadline, RemoteError
from gearcache.cache.remote.within import within

INDEX = "index.txt"
_Result = TypeVar("_Result")
_MAX_INDEX = 16 << 20


class WebRemote:
    """Files behind HTTP. One request, one connection: redirects are refused, so that no other host is asked."""

    creates: Creates = "no"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise ValueError(f"`{parts.scheme}://{parts.hostname}` has a name or password, which no request would send")
        self._parts = parts
        self.label = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        def read(answer: http.client.HTTPResponse) -> bytes:
            data = answer.read(limit + 1)
            if len(data) > limit:
                raise RemoteError(self.label, f"`{name}` has more than {limit} bytes")
            if answer.length:
                raise RemoteError(self.label, f"`{name}` is cut off after {len(data)} bytes")
            return data

        return self._ask("GET", name, read, deadline)

    def size(self, name: str, deadline: Deadline) -> int | None:
        def read(answer: http.client.HTTPResponse) -> int:
            length = answer.getheader("Content-Length", "")
            if not length.isdigit():
                raise RemoteError(self.label, f"it does not say the size of `{name}`")
            return int(length)

        return self._ask("HEAD", name, read, deadline)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        raise RemoteError(self.label, "it is read only")

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        data = self.get(prefix + INDEX, _MAX_INDEX, deadline)
        lines = data.decode("ascii", "replace").split() if data is not None else []
        return sorted(prefix + line for line in lines if "/.." not in f"/{line}")[:limit]

    def delete(self, name: str, deadline: Deadline) -> None:
        raise RemoteError(self.label, "it is read only")

    def clock(self, written: str, deadline: Deadline) -> float | None:
        """Return the time of the server in whole seconds since 1970, as its answers say."""
        found: list[float] = []

        def note(answer: http.client.HTTPResponse) -> None:
            with contextlib.suppress(TypeError, ValueError):
                found.append(parsedate_to_datetime(answer.getheader("Date", "")).timestamp())

        self._ask("HEAD", written, lambda _: None, deadline, note)
        return found[0] if found else None

    def _ask(
        self,
        method: str,
        name: str,
        read: Callable[[http.client.HTTPResponse], _Result],
        deadline: Deadline,
        look: Callable[[http.client.HTTPResponse], object] = lambda _: None,
    ) -> _Result | None:
        """Return what `read` makes of an object; None for none. `look` sees the head of any answer."""
        connection = self._connect(deadline)

        def ask() -> _Result | None:
            path = f"{self._parts.path.rstrip('/')}/{quote(name)}"
            connection.request(method, path, headers={"Connection": "close", "Accept-Encoding": "identity"})
            answer = connection.getresponse()
            look(answer)
            if answer.status in (404, 410):
                return None
            if answer.status != 200:
                raise RemoteError(self.label, f"`{name}`: status {answer.status} {answer.reason}")
            return read(answer)

        try:
            return within(deadline, self.label, ask, lambda: _cut(connection))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RemoteError(self.label, f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _connect(self, deadline: Deadline) -> http.client.HTTPConnection:
        left = deadline.check(self.label)
        host, port = self._parts.hostname or "", self._parts.port
        timeout = min(CONNECT_SECONDS, left)
        connection: http.client.HTTPConnection
        if self._parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            raise RemoteError(self.label, f"{type(error).__name__}: {error}") from error
        connection.sock.settimeout(deadline.check(self.label))
        return connection


def _cut(connection: http.client.HTTPConnection) -> None:
    """End a connection under whoever reads from it."""
    with contextlib.suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
