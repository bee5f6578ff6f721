"""Registries of images for tests: Debian's docker-registry, and a small one that misbehaves where it is told to."""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

_START_SECONDS = 20.0
#: Of the password `secret`, by bcrypt.
HTPASSWD = "team:$2b$05$paVq4SDEV9kwgXKTu55N4eJs31WNfbBcj0aAZXtNS1EIHCYnqRhU.\n"


def registry_program() -> str:
    """The program of Debian's package; skips the test where `scripts/registry.sh` could not bring it."""
    for prefix in (Path(sys.prefix), ROOT / ".venv"):
        program = prefix / "registry" / "usr" / "bin" / "docker-registry"
        if os.access(program, os.X_OK):
            return str(program)
    found = shutil.which("docker-registry")
    if found is None:
        pytest.skip("there is no docker-registry: `scripts/registry.sh .venv/registry` downloads Debian's")
    return found


@contextmanager
def docker_registry(*, password: bool = False) -> Iterator[str]:
    """A real registry, as `host:port`; with `password` it wants the name `team` and the password `secret`."""
    program = registry_program()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config: dict[str, object] = {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": folder}},
            "http": {"addr": f"127.0.0.1:{port}"},
            "log": {"accesslog": {"disabled": True}, "level": "error"},
        }
        if password:
            Path(folder, "htpasswd").write_text(HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "team", "path": f"{folder}/htpasswd"}}
        Path(folder, "config.json").write_text(json.dumps(config))  # all JSON is YAML
        process = subprocess.Popen([program, "serve", f"{folder}/config.json"], stderr=subprocess.DEVNULL)
        try:
            _wait(f"http://127.0.0.1:{port}/v2/")
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _wait(url: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return


@dataclass
class Seen:
    """A request that a server got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, dict[str, str], bytes]


@dataclass
class SmallRegistry:
    """A registry in memory. `instead` answers a request in its place, or returns None.

    With `realm` it wants a bearer token that `tokens` holds; `storage` is where it redirects those who want blobs.
    """

    host: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    realm: str = ""
    storage: str = ""
    instead: Callable[[Seen], Answer | None] = lambda _: None

    def answer(self, seen: Seen) -> Answer:
        self.seen.append(seen)
        if (found := self.instead(seen)) is not None:
            return found
        if self.realm and seen.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            challenge = f'Bearer realm="{self.realm}",service="registry.test",scope="repository:team/gears:pull"'
            return 401, {"WWW-Authenticate": challenge}, b'{"errors":[{"code":"UNAUTHORIZED"}]}'
        path, _, query = seen.path.partition("?")
        kind, _, name = path.removeprefix("/v2/").removeprefix("team/gears/").partition("/")
        if kind == "manifests":
            return self._manifest(seen, name)
        if name.startswith("uploads/"):
            return self._upload(seen, name, query)
        if self.storage and seen.method == "GET":
            return 307, {"Location": f"{self.storage}/{name}?signature=abc"}, b""
        data = self.blobs.get(name)
        return (404, {}, b'{"errors":[{"code":"BLOB_UNKNOWN"}]}') if data is None else (200, {}, data)

    def _manifest(self, seen: Seen, name: str) -> Answer:
        if seen.method == "PUT":
            digest = f"sha256:{sha256(seen.body).hexdigest()}"
            for key in (name, digest):
                self.manifests[key] = (seen.headers["content-type"], seen.body)
            return 201, {"Docker-Content-Digest": digest}, b""
        media_type, data = self.manifests.get(name, ("", b""))
        if not data:
            return 404, {}, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}'
        return 200, {"Content-Type": media_type}, data

    def _upload(self, seen: Seen, name: str, query: str) -> Answer:
        if seen.method == "POST":
            return 202, {"Location": "/v2/team/gears/blobs/uploads/1?state=x"}, b""
        digest = urllib.parse.parse_qs(query)["digest"][0]
        if digest != f"sha256:{sha256(seen.body).hexdigest()}":
            return 400, {}, b'{"errors":[{"code":"DIGEST_INVALID"}]}'
        self.blobs[digest] = seen.body
        return 201, {}, b""


@contextmanager
def serving(answer: Callable[[Seen], Answer], certificate: Path | None = None) -> Iterator[str]:
    """A web server that answers so, as `host:port`; encrypted with a `certificate`, which holds its key too."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen = Seen(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            status, headers, data = answer(seen)
            with suppress(OSError):  # whoever asked may have gone
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = _do

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who distrusts it hangs up
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    """A small registry that answers."""
    made = SmallRegistry()
    with serving(lambda seen: made.answer(seen)) as host:
        made.host = host
        yield made


def basic(name: str, password: str) -> str:
    """The text of `auth` in a file of credentials."""
    return base64.b64encode(f"{name}:{password}".encode()).decode()


def write_certificate(path: Path) -> Path:
    """A certificate of `localhost` that signs itself, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(pem) + secret)
    return path
