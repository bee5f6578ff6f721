"""Where an image is: `oci://registry/repository:tag`, or `@sha256:…` instead of a tag."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from gearcache.cache.remote.oci.documents import is_image_digest

SCHEME = "oci"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_LONGEST = 255
#: The registry that `docker.io` means, and the folder of its images with a single name.
_HUB = ("docker.io", "index.docker.io")
_HUB_HOST = "registry-1.docker.io"


@dataclass(frozen=True)
class Reference:
    """An image in a registry. `host` has a port where one is given; `name` is a tag or `sha256:<64 hex>`."""

    host: str
    repository: str
    name: str
    insecure: bool = False

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return f"{SCHEME}://{self.host}/{self.repository}{'@' if self.is_digest else ':'}{self.name}"

    @property
    def is_digest(self) -> bool:
        """Whether it names one image for ever, and no tag that may move."""
        return is_image_digest(self.name)

    @property
    def origin(self) -> str:
        """Where its registry answers, `https://host`; without encryption only on this host, or where asked for."""
        return f"{'http' if self.insecure else 'https'}://{self.host}"


def parse_reference(url: str, insecure: bool | None = None) -> Reference:
    """Return what an URL names; without a tag that is `latest`. `ValueError` says what is wrong.

    `insecure` is for a registry without encryption; left out, only one on this host (`localhost`) is taken for one.
    """
    parts = urlsplit(url)
    path, _, digest = parts.path.lstrip("/").partition("@")
    repository, _, tag = path.partition(":")
    host = parts.netloc.lower()
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"`{SCHEME}://{parts.hostname}` has a name or password; `docker login` or `podman login` store these"
        )
    if parts.scheme != SCHEME or not parts.hostname:
        raise ValueError(f"`{url}` names no image: `{SCHEME}://registry/repository:tag`")
    if host in _HUB:
        host, repository = _HUB_HOST, repository if "/" in repository else f"library/{repository}"
    if not _REPOSITORY.fullmatch(repository) or len(repository) > _LONGEST:
        raise ValueError(f"`{url}`: `{repository}` is no repository; it has small letters, digits, and `.`, `_`, `-`")
    if tag and not _TAG.fullmatch(tag):
        raise ValueError(f"`{url}`: `{tag}` is no tag; it has letters, digits, `.`, `_`, `-`, and at most 128 of them")
    if digest and not is_image_digest(digest):
        raise ValueError(f"`{url}`: `{digest}` is no digest of an image; it is `sha256:` and 64 digits")
    if parts.port == 0:
        raise ValueError(f"`{url}` has no port that can be asked")
    is_plain = is_this_host(parts.hostname) if insecure is None else insecure
    return Reference(host, repository, digest or tag or "latest", is_plain)


def is_this_host(name: str) -> bool:
    """Whether a host name or address is one of the host itself, by its form alone."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
