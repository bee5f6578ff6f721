"""Talking to a registry of images: the few requests of the OCI distribution that pulling and pushing take."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import SplitResult, urljoin, urlsplit

from gearcache.cache.remote.oci.challenge import MAX_ANSWER_SIZE, Challenge, read_challenge, read_token
from gearcache.cache.remote.oci.credentials import Credentials
from gearcache.cache.remote.oci.documents import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    MAX_DOCUMENT_SIZE,
    Descriptor,
    ImageError,
    digest_of,
    is_image_digest,
)
from gearcache.cache.remote.oci.reference import Reference, is_this_host
from gearcache.cache.remote.protocol import CONNECT_SECONDS, Deadline, RemoteError

_PIECE = 1 << 20
_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_CODE = re.compile(r"[A-Z_]{1,40}", re.ASCII)


class Registry:
    """One repository of a registry, for one task of one thread; `cut` may come from another thread.

    A request is a connection of its own. Name, password and tokens go to the registry and to the server of tokens that
    it names, never to a host that it redirects to. Methods raise `RemoteError`, `OSError`, `http.client.HTTPException`
    and `ValueError`.
    """

    def __init__(
        self,
        reference: Reference,
        credentials: Credentials | None,
        deadline: Deadline,
        *,
        actions: str = "pull",
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        self.sent = 0
        self._reference = reference
        self._credentials = credentials
        self._deadline = deadline
        self._scope = f"repository:{reference.repository}:{actions}"
        self._connect_seconds = connect_seconds
        self._authorization = f"Bearer {credentials.bearer}" if credentials and credentials.bearer else ""
        self._socket: socket.socket | None = None

    def manifest(self, name: str) -> bytes | None:
        """Return the manifest or index that a tag or digest names; None where there is none."""
        accepted = ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))
        with self._answer("GET", self._url("manifests", name), {"Accept": accepted}, (200, 404)) as answer:
            if answer.status == 404:
                return None
            data = self._whole(answer, MAX_DOCUMENT_SIZE)
            told = answer.getheader("Docker-Content-Digest", "")
        if is_image_digest(told) and digest_of(data) != told:
            raise ImageError(f"it gives other bytes for {told}")
        return data

    def document(self, part: Descriptor) -> bytes:
        """Return a small blob, as it is: the caller verifies it."""
        with contextlib.closing(self.blob(part)) as pieces:
            return b"".join(pieces)

    def blob(self, part: Descriptor) -> Generator[bytes, None, None]:
        """Yield a blob in pieces as it arrives, at most a piece more than it should have.

        The caller verifies it, and closes this.
        """
        with self._answer("GET", self._url("blobs", part.digest), {}, (200,), follow=True) as answer:
            size = 0
            while size <= part.size and (piece := answer.read1(_PIECE)):
                self._deadline.check(self._reference.label)
                size += len(piece)
                yield piece

    def has_blob(self, part: Descriptor) -> bool:
        """Whether a blob is there."""
        with self._answer("HEAD", self._url("blobs", part.digest), {}, (200, 404), follow=True) as answer:
            return answer.status == 200

    def put_blob(self, part: Descriptor, file: BinaryIO) -> None:
        """Store a blob, in one request after the one that opens the upload."""
        with self._answer("POST", self._url("blobs", "uploads/"), {"Content-Length": "0"}, (202,)) as answer:
            place = self._next(self._url("blobs", "uploads/"), answer.getheader("Location", ""))
        target = f"{place}{'&' if urlsplit(place).query else '?'}digest={part.digest}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(part.size)}
        with self._answer("PUT", target, headers, (201, 204), body=file):
            self.sent += part.size

    def put_manifest(self, name: str, data: bytes, media_type: str) -> None:
        """Store a manifest under a tag, which then names it."""
        headers = {"Content-Type": media_type, "Content-Length": str(len(data))}
        with self._answer("PUT", self._url("manifests", name), headers, (201, 200), body=data):
            return

    def cut(self) -> None:
        """End the request that is under way."""
        with contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def _url(self, kind: str, name: str) -> str:
        return f"{self._reference.origin}/v2/{self._reference.repository}/{kind}/{name}"

    @contextmanager
    def _answer(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        wanted: tuple[int, ...],
        *,
        body: BinaryIO | bytes | None = None,
        follow: bool = False,
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request, after a token and redirects; `RemoteError` for a status that is not wanted."""
        asked = False
        for _ in range(_MOST_REDIRECTS + 1):
            with self._exchange(method, url, headers, body) as answer:
                if answer.status in wanted:
                    yield answer
                    return
                if answer.status == 401 and not asked and self._is_ours(url):
                    challenge, asked = read_challenge(answer.headers.get_all("WWW-Authenticate") or []), True
                elif follow and answer.status in _REDIRECTS:
                    challenge, url = None, self._next(url, answer.getheader("Location", ""))
                    continue
                else:
                    raise self._refused(method, answer)
            self._authorize(challenge)
        raise self._wrong("it redirects without end")

    @contextmanager
    def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: BinaryIO | bytes | None = None,
        authorization: str | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        parts = urlsplit(url)
        if authorization is None:
            authorization = self._authorization if self._is_ours(url) else ""
        whole = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "gearcache", **headers}
        if authorization:
            whole["Authorization"] = authorization
        if body is not None and not isinstance(body, bytes):
            body.seek(0)  # it may have been read by a try before
        connection = self._connect(parts)
        try:
            try:
                connection.request(method, _target(parts), body=body, headers=whole)
            except (BrokenPipeError, ConnectionResetError):
                # Refused before all of it was sent: the answer says why, if it arrives.
                if body is None:
                    raise
            with connection.getresponse() as answer:
                yield answer
        finally:
            connection.close()

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        left = self._deadline.check(self._reference.label)
        host, port, timeout = parts.hostname or "", parts.port, min(self._connect_seconds, left)
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, blocksize=_PIECE, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout, blocksize=_PIECE)
        connection.connect()
        # The connection lets go of it when an answer begins.
        self._socket = connection.sock
        connection.sock.settimeout(self._deadline.check(self._reference.label))
        return connection

    def _authorize(self, challenge: Challenge | None) -> None:
        """Get what the registry asks for; `RemoteError` where there is nothing, or it is not given."""
        credentials = self._credentials or Credentials()
        if challenge is None:
            raise self._wrong("it asks for credentials of a kind that is not known here")
        if not challenge.realm:
            if not credentials.basic or self._authorization:
                raise self._unauthorized()
            self._authorization = credentials.basic
            return
        self._check_place(challenge.realm)
        method, url, body, headers = "GET", challenge.address(self._scope), None, {}
        if credentials.identity:
            method, url, body = "POST", challenge.realm, challenge.exchange(credentials.identity, self._scope)
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
        with self._exchange(method, url, headers, body, "" if credentials.identity else credentials.basic) as answer:
            if answer.status in (401, 403):
                raise self._unauthorized()
            if answer.status != 200:
                raise self._wrong(f"its server of tokens answers with status {answer.status}")
            self._authorization = f"Bearer {read_token(self._whole(answer, MAX_ANSWER_SIZE))}"

    def _is_ours(self, url: str) -> bool:
        return _origin(urlsplit(url)) == _origin(urlsplit(self._reference.origin))

    def _next(self, url: str, location: str) -> str:
        if not location:
            raise self._wrong("it does not say where to go on")
        target = urljoin(url, location)
        self._check_place(target)
        return target

    def _check_place(self, url: str) -> None:
        """Refuse to go on without encryption, unless the registry itself has none."""
        parts = urlsplit(url)
        is_plain = parts.scheme == "http" and (self._reference.insecure or is_this_host(parts.hostname or ""))
        if not parts.hostname or not (parts.scheme == "https" or is_plain):
            raise self._wrong("it sends on to an address that is not of `https:`")

    def _whole(self, answer: http.client.HTTPResponse, limit: int) -> bytes:
        data = answer.read(limit + 1)
        if len(data) > limit:
            raise ImageError(f"it answers with more than {limit} bytes, where a document belongs")
        if answer.length:
            raise ImageError(f"its answer is cut off after {len(data)} bytes")
        return data

    def _refused(self, method: str, answer: http.client.HTTPResponse) -> RemoteError:
        if answer.status == 401:
            return self._unauthorized()
        told = (
            f"{method} is answered with status {answer.status} {http.client.responses.get(answer.status, '')}".strip()
        )
        codes = _codes(answer.read(_PIECE))
        return self._wrong(f"{told} ({', '.join(codes)})" if codes else told)

    def _unauthorized(self) -> RemoteError:
        known = "those that are stored are refused" if self._credentials else "none are stored for it: `docker login`"
        return self._wrong(f"it wants credentials, and {known}")

    def _wrong(self, problem: str) -> RemoteError:
        return RemoteError(self._reference.label, problem)


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, (parts.hostname or "").lower(), port


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _codes(data: bytes) -> list[str]:
    """The codes of the errors that a registry names; its texts are not passed on."""
    try:
        errors = json.loads(data)["errors"]
        codes = [str(error["code"]) for error in errors]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [code for code in codes if _CODE.fullmatch(code)][:3]
