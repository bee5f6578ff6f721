"""A server that answers each request with bytes of the test's choice, as a broken or hostile server would."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

#: What is sent, with pauses in seconds between.
Answer = Iterable[bytes | float]


class Hostile:
    """A server at `port` that gives `answer` to every request and closes; it keeps the requests' heads."""

    def __init__(self) -> None:
        self.answer: Answer = ()
        self.requests: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := connection.recv(65536)):
                    break
                head += piece
            self.requests.append(head)
            for part in self.answer:
                if isinstance(part, float):
                    time.sleep(part)
                else:
                    connection.sendall(part)
            # What was not read would make the system cut off the answer.
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                continue
        self.open.discard(connection)

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._listening.close()


@contextmanager
def hostile() -> Iterator[Hostile]:
    """A server that is closed at the end."""
    server = Hostile()
    try:
        yield server
    finally:
        server.close()


def http_answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> list[bytes]:
    """Return an answer with the length of its body, if `headers` name no other and no encoding."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    if not fields.keys() & {"Content-Length", "Transfer-Encoding", "No-Length"}:
        fields["Content-Length"] = str(len(body))
    fields["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return [f"HTTP/1.1 {status}\r\n{lines}\r\n".encode(), body]


def slowly(pieces: Iterable[bytes], seconds: float = 0.1) -> Iterator[bytes | float]:
    """Give the bytes of an answer one at a time, with pauses."""
    for byte in b"".join(pieces):
        yield bytes([byte])
        yield seconds


def for_ever(first: Iterable[bytes], piece: bytes, seconds: float = 0.001) -> Iterator[bytes | float]:
    """Give an answer that does not end."""
    yield from first
    while True:
        yield piece
        yield seconds
