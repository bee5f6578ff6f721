"""`s3://bucket/prefix`, `gs://…`, `az://…`: object stores, through obstore."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from gearcache.cache.remote.protocol import CONNECT_SECONDS, Creates, Deadline, RemoteError

_CHUNK = 1 << 20


class ObjectRemote:
    """A bucket. Credentials come from where the engine's own tools find them (environment, profile, instance).

    The client has threads: it is made at the first request, never before a fork.
    """

    #: rclone's server ignores the condition, Alibaba's refuses it.
    creates: Creates = "perhaps"

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        parts = urlsplit(url)
        self.label = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._options = dict(options or {})
        self._stores: dict[float, Any] = {}

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        import obstore

        with self._translated():
            try:
                found = obstore.get(self._store(deadline), name)
            except FileNotFoundError:
                return None
            size = found.meta["size"]
            if size > limit:
                raise RemoteError(self.label, f"`{name}` has {size} bytes, more than {limit}")
            pieces, held = [], 0
            for piece in found.stream(min_chunk_size=_CHUNK):
                deadline.check(self.label)
                pieces.append(bytes(piece))
                held += len(piece)
                if held > limit:
                    raise RemoteError(self.label, f"`{name}` has more than {limit} bytes")
            return b"".join(pieces)

    def size(self, name: str, deadline: Deadline) -> int | None:
        import obstore

        with self._translated():
            try:
                return int(obstore.head(self._store(deadline), name)["size"])
            except FileNotFoundError:
                return None

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._translated():
            try:
                obstore.put(self._store(deadline), name, data, mode="create" if create else "overwrite")
            except AlreadyExistsError:
                return False
        return True

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        import obstore

        found: list[str] = []
        with self._translated():
            for batch in obstore.list(self._store(deadline), prefix.rstrip("/"), chunk_size=min(limit, 1000)):
                deadline.check(self.label)
                found += [item["path"] for item in batch]
                if len(found) >= limit:
                    break
        return sorted(found)[:limit]

    def delete(self, name: str, deadline: Deadline) -> None:
        import obstore

        with self._translated():
            try:
                obstore.delete(self._store(deadline), name)
            except FileNotFoundError:
                return

    def clock(self, written: str, deadline: Deadline) -> float | None:
        """Return when an object was stored, in whole seconds since 1970."""
        import obstore

        with self._translated():
            try:
                return float(obstore.head(self._store(deadline), written)["last_modified"].timestamp())
            except FileNotFoundError:
                return None

    def _store(self, deadline: Deadline) -> Any:
        """Return a client whose requests end in time; kept for each whole second."""
        import obstore.store

        from_url: Any = obstore.store.from_url  # its types ask for one kind of engine
        left = deadline.check(self.label)
        seconds = max(1.0, float(round(left)))
        if seconds not in self._stores:
            options = dict(self._options)
            allow_http = str(options.get("endpoint", "")).startswith("http://")
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

    @contextmanager
    def _translated(self) -> Any:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            first = str(error).partition("\n")[0]
            raise RemoteError(self.label, f"{type(error).__name__}: {first}") from error
