"""The tier `https://host/path`: a web server with files, such as a bucket's website or nginx; read only.

The file `index.txt` below a key lists its content, one name a line; `gearcache push` writes it last.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Container
from typing import TypeVar
from urllib.parse import quote, urlsplit

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

INDEX = "index.txt"
_Result = TypeVar("_Result")
_ABSENT = (404, 410)
#: A bucket that serves objects but no lists of them answers "forbidden" for an absent object, such as the list of an
#: entry.
_NO_LIST = (403, *_ABSENT)
MAX_INDEX = 16 << 20


class WebRemote:
    """Files behind HTTP. One request, one connection: redirects are refused, so that no other host is asked.

    Proxies of the environment are not used.
    """

    creates: Creates = "no"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise ValueError(f"`{parts.scheme}://{parts.hostname}` has a name or password, which no request would send")
        self._parts = parts
        self.label = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        return self._get(name, limit, deadline, _ABSENT)

    def _get(self, name: str, limit: int, deadline: Deadline, absent: Container[int]) -> bytes | None:
        def read(answer: http.client.HTTPResponse) -> bytes:
            if answer.length is None and not answer.chunked:
                raise RemoteError(self.label, f"it does not say the size of `{name}`, which may be cut off")
            data = answer.read(limit + 1)
            if len(data) > limit:
                raise TooLarge(self.label, f"`{name}` has more than {limit} bytes")
            if answer.length:
                raise RemoteError(self.label, f"`{name}` is cut off after {len(data)} bytes")
            return data

        return self._ask("GET", name, read, deadline, absent=absent)

    def size(self, name: str, deadline: Deadline) -> int | None:
        def read(answer: http.client.HTTPResponse) -> int:
            length = answer.getheader("Content-Length", "")
            if not length.isdecimal():
                raise RemoteError(self.label, f"it does not say the size of `{name}`")
            return int(length)

        return self._ask("HEAD", name, read, deadline)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        raise Denied(self.label, "it is read only")

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        data = self._get(prefix + INDEX, MAX_INDEX, deadline, _NO_LIST) or b""
        if data.lstrip()[:1] == b"<":
            raise RemoteError(self.label, f"`{prefix}{INDEX}` is a page, and no list of names")
        lines = {line.removesuffix("\r") for line in data.decode("utf-8", "replace").split("\n")}
        # `\ufffd` stands for bytes that are not text; such a name would request another object.
        return sorted(prefix + line for line in lines if is_name(prefix + line) and "\ufffd" not in line)[:limit]

    def delete(self, name: str, deadline: Deadline) -> None:
        raise Denied(self.label, "it is read only")

    def _ask(
        self,
        method: str,
        name: str,
        read: Callable[[http.client.HTTPResponse], _Result],
        deadline: Deadline,
        absent: Container[int] = _ABSENT,
    ) -> _Result | None:
        """Return the result of `read` for an object; None where it is absent."""
        check_name(self.label, name)

        def ask() -> _Result | None:
            connection, context = self._connection(deadline)
            try:
                connection.sock = socket.create_connection(
                    (connection.host, connection.port), min(CONNECT_SECONDS, deadline.check(self.label))
                )
                connection.sock.settimeout(deadline.check(self.label))
                if context is not None:
                    connection.sock = context.wrap_socket(
                        connection.sock, server_hostname=connection.host, do_handshake_on_connect=False
                    )
                    connection.sock.do_handshake()
                return self._request(connection, method, name, read, absent)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise RemoteError(self.label, f"{type(error).__name__}: {error}") from error
            finally:
                connection.close()

        return within(deadline, self.label, ask)

    def _request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        name: str,
        read: Callable[[http.client.HTTPResponse], _Result],
        absent: Container[int],
    ) -> _Result | None:
        path = f"{self._parts.path.rstrip('/')}/{quote(name)}"
        connection.request(method, path, headers={"Connection": "close", "Accept-Encoding": "identity"})
        with connection.getresponse() as answer:
            if answer.status in absent:
                return None
            if answer.status != 200:
                raise RemoteError(self.label, f"`{name}`: status {answer.status} {answer.reason}")
            if (encoding := answer.getheader("Content-Encoding", "identity").lower()) != "identity":
                raise RemoteError(self.label, f"`{name}` comes with the encoding {encoding}, which nobody asked for")
            return read(answer)

    def _connection(self, deadline: Deadline) -> tuple[http.client.HTTPConnection, ssl.SSLContext | None]:
        """Return a connection that is not opened yet."""
        host, port, seconds = self._parts.hostname or "", self._parts.port, deadline.check(self.label)
        if self._parts.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=seconds), None
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context), context
