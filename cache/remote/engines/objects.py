"""The tiers `s3://bucket/prefix`, `gs://…` and `az://…`: object stores, through obstore."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
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

if TYPE_CHECKING:
    from gearcache.cache.remote.engines.relay import Relay

_CHUNK = 1 << 20
_Result = TypeVar("_Result")
#: Errors of the client for credentials without the right.
_DENIED = ("PermissionDeniedError", "UnauthenticatedError")
#: A user name and password, as they may be written in an endpoint.
_USER = re.compile(r"//[^/\s@]+@")
#: Process ids of this process and its ancestors that have used the client: a forked child has none of its threads, and
#: would wait for them for ever.
_users: set[int] = set()


class ObjectRemote:
    """A bucket. Credentials come from where the engine's own tools find them (environment, profile, instance).

    The client has threads, so it is made at the first request. A forked child of a process that has used it sends its
    requests through another process.
    """

    #: rclone's server ignores the condition, Alibaba's refuses it.
    creates: Creates = "perhaps"

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        parts = urlsplit(url)
        place = urlsplit(str((options or {}).get("endpoint", ""))).netloc.rpartition("@")[2]
        self.label = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        if place:  # buckets of one name at two endpoints are two tiers
            self.label += f"?endpoint={place}"
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._options = dict(options or {})
        self._stores: dict[float, Any] = {}
        self._relays: dict[int, Relay] = {}

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        def read(store: Any) -> bytes | None:
            import obstore

            try:
                response = obstore.get(store, name)
            except FileNotFoundError:
                return None
            # The client does not decode it, and gearcache stores objects without an encoding.
            if (encoding := response.attributes.get("Content-Encoding", "identity")) != "identity":
                raise RemoteError(self.label, f"`{name}` comes with the encoding {encoding}, which nobody asked for")
            size = response.meta["size"]
            if size > limit:
                raise TooLarge(self.label, f"`{name}` has {size} bytes, more than {limit}")
            pieces, received_size = [], 0
            for piece in response.stream(min_chunk_size=_CHUNK):
                deadline.check(self.label)
                pieces.append(bytes(piece))
                received_size += len(piece)
                if received_size > limit:
                    raise TooLarge(self.label, f"`{name}` has more than {limit} bytes")
            if received_size != size:
                raise RemoteError(self.label, f"`{name}` is cut off after {received_size} of {size} bytes")
            return b"".join(pieces)

        return self._do(deadline, read, "get", name=name, limit=limit)

    def size(self, name: str, deadline: Deadline) -> int | None:
        def look(store: Any) -> int | None:
            import obstore

            try:
                return int(obstore.head(store, name)["size"])
            except FileNotFoundError:
                return None

        return self._do(deadline, look, "size", name=name)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        def write(store: Any) -> bool:
            import obstore
            from obstore.exceptions import AlreadyExistsError

            try:
                obstore.put(store, name, data, mode="create" if create else "overwrite", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        return self._do(deadline, write, "put", name=name, data=data, create=create)

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        def read(store: Any) -> list[str]:
            import obstore

            names: list[str] = []
            for batch in obstore.list(store, prefix.removesuffix("/"), chunk_size=min(limit, 1000)):
                deadline.check(self.label)
                paths = [str(item["path"]) for item in batch]
                names += [path for path in paths if path.startswith(prefix) and is_name(path)]
                if len(names) >= limit:
                    break
            return sorted(names)[:limit]

        return self._do(deadline, read, "names", prefix=prefix, limit=limit)

    def delete(self, name: str, deadline: Deadline) -> None:
        def remove(store: Any) -> None:
            import obstore

            try:
                obstore.delete(store, name)
            except FileNotFoundError:
                return

        self._do(deadline, remove, "delete", name=name)

    def _do(self, deadline: Deadline, work: Callable[[Any], _Result], operation: str, **arguments: Any) -> _Result:
        """Return the result of `work` with a client. It runs in a thread: a list takes many requests, and credentials
        take others.

        `operation` and `arguments` describe the request for another process.
        """
        check_name(self.label, arguments["name"] if "name" in arguments else arguments["prefix"].removesuffix("/"))
        if _users and os.getpid() not in _users:
            result: _Result = self._relay().ask(operation, arguments, deadline)
            return result
        _users.add(os.getpid())
        return within(deadline, self.label, lambda: self._tried(work, deadline))

    def _tried(self, work: Callable[[Any], _Result], deadline: Deadline) -> _Result:
        try:
            return work(self._store(deadline))
        except RemoteError:
            raise
        except Exception as error:
            kind = Denied if type(error).__name__ in _DENIED else RemoteError
            problem = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # a panic in Rust, which is not an `Exception`
                raise
            kind, problem = RemoteError, f"its client failed: {error}"
        raise kind(self.label, self._without_secrets(problem))

    def _relay(self) -> Relay:
        """Return the process that sends requests for this one; each child has its own."""
        from gearcache.cache.remote.engines.relay import Relay

        process = os.getpid()
        if process not in self._relays:
            self._relays = {process: Relay(self.label, self._url, self._options)}
        return self._relays[process]

    def _without_secrets(self, text: str) -> str:
        for name, value in self._options.items():
            if ("secret" in name or "key" in name or "token" in name) and isinstance(value, str) and value:
                text = text.replace(value, "…")
        return _USER.sub("//…@", text)

    def _store(self, deadline: Deadline) -> Any:
        """Return a client whose requests end within twice the remaining time; there is one for each power of two."""
        import obstore.store

        from_url: Any = obstore.store.from_url  # its types ask for one kind of engine
        seconds = 2.0 ** max(0, math.ceil(math.log2(deadline.check(self.label))))
        if seconds not in self._stores:
            options = dict(self._options)
            # Emulators use http; a Google emulator is named in `service_account_key`, so its option asks for http.
            allow_http = str(options.get("endpoint", "")).startswith("http://") or bool(options.pop("allow_http", ""))
            self._stores[seconds] = from_url(
                self._url,
                config=options or None,
                client_options={
                    "timeout": timedelta(seconds=seconds),
                    "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, seconds)),
                    **({"allow_http": True} if allow_http else {}),
                },
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=seconds)},
            )
        return self._stores[seconds]
