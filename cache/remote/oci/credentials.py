"""Who one is to a registry: what `docker login`, `podman login`, `oras login` or Kubernetes stored in a file."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gearcache.cache.opening import open_regular

FILE_VARIABLE = "REGISTRY_AUTH_FILE"
FOLDER_VARIABLE = "DOCKER_CONFIG"
_MAX_SIZE = 1 << 20
_HUB = ("registry-1.docker.io", "index.docker.io", "docker.io")


@dataclass(frozen=True)
class Credentials:
    """A name and password, or a token to be exchanged (`identity`), or one to be sent as it is (`bearer`)."""

    name: str = ""
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)
    bearer: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The header that tells name and password; empty where there are none."""
        if not self.name and not self.password:
            return ""
        return "Basic " + base64.b64encode(f"{self.name}:{self.password}".encode()).decode()


def find_credentials(host: str, repository: str, environ: Mapping[str, str]) -> Credentials | None:
    """Return what is stored for a repository, else for its registry; None where nothing is.

    Looks into `$REGISTRY_AUTH_FILE`, or `$DOCKER_CONFIG/config.json`, or `~/.docker/config.json`: the first of them
    that is named. Programs that some registries need (`credHelpers`, `credsStore`) are not run. `ValueError` names a
    file that cannot be read.
    """
    path = credentials_file(environ)
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY, follow=True), "rb") as file:
            document = json.loads(file.read(_MAX_SIZE))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise ValueError(f"`{path}` is no JSON") from None  # what it holds is secret
    auths = document.get("auths") if isinstance(document, dict) else None
    stored = {_plain(name): value for name, value in auths.items()} if isinstance(auths, dict) else {}
    for name in _names(host, repository):
        if isinstance(found := stored.get(name), dict):
            return _credentials(found, path, name)
    return None


def credentials_file(environ: Mapping[str, str]) -> Path:
    """Return the file in which credentials are looked for."""
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    folder = environ.get(FOLDER_VARIABLE)
    return Path(folder or os.path.expanduser("~/.docker")) / "config.json"


def _names(host: str, repository: str) -> Iterator[str]:
    """The names that credentials may have, the closest first."""
    for registry in _HUB if host in _HUB else (host,):
        parts = repository.split("/")
        yield from ("/".join([registry, *parts[:number]]) for number in range(len(parts), -1, -1))


def _plain(name: str) -> str:
    """`https://host/v1/`, as older programs write it, is `host`."""
    name = name.partition("://")[2] or name
    for end in ("/", "/v1", "/v2"):
        name = name.removesuffix(end)
    return name


def _credentials(found: dict[str, Any], path: Path, name: str) -> Credentials | None:
    def text(key: str) -> str:
        value = found.get(key)
        return value if isinstance(value, str) else ""

    user, password = text("username"), text("password")
    if packed := text("auth"):
        try:
            user, colon, password = base64.b64decode(packed, validate=True).decode().partition(":")
        except ValueError:
            colon = ""
        if not colon:
            raise ValueError(f"`{path}`: `auth` of `{name}` is no name and password")
    made = Credentials(user, password.rstrip("\0"), text("identitytoken"), text("registrytoken"))
    # Where a helper program keeps them, an empty item is left for the registry.
    return made if made.basic or made.identity or made.bearer else None
