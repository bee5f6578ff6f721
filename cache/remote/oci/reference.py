"""Where an image is: `oci://registry/repository:tag`, or `@sha256:…` instead of a tag."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from gearcache.cache.remote.oci.digest import is_image_digest

SCHEME = "oci"
# No regular expressions: each start of a program that names a tier would compile them.
_SMALL = "abcdefghijklmnopqrstuvwxyz0123456789"
_WITHOUT_SMALL = str.maketrans(dict.fromkeys(_SMALL, " "))
_IN_TAG = _SMALL + "ABCDEFGHIJKLMNOPQRSTUVWXYZ_.-"
_LONGEST_TAG = 128
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
    if not all(map(_is_name, repository.split("/"))) or len(repository) > _LONGEST:
        raise ValueError(f"`{url}`: `{repository}` is no repository; it has small letters, digits, and `.`, `_`, `-`")
    if tag and (tag.strip(_IN_TAG) or tag[0] in ".-" or len(tag) > _LONGEST_TAG):
        raise ValueError(f"`{url}`: `{tag}` is no tag; it has letters, digits, `.`, `_`, `-`, and at most 128 of them")
    if digest and not is_image_digest(digest):
        raise ValueError(f"`{url}`: `{digest}` is no digest of an image; it is `sha256:` and 64 digits")
    if parts.port == 0:
        raise ValueError(f"`{url}` has no port that can be asked")
    is_plain = is_this_host(parts.hostname) if insecure is None else insecure
    return Reference(host, repository, digest or tag or "latest", is_plain)


def is_this_host(name: str) -> bool:
    """Whether a host name or address is one of the host itself, by its form alone."""
    import ipaddress  # not at each start of a program that names a tier

    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _is_name(part: str) -> bool:
    """Whether a text may be a part of a repository: small letters and digits, and one mark between them at a time."""
    marks = part.translate(_WITHOUT_SMALL).split()
    has_ends = part[:1] in tuple(_SMALL) and part[-1] in _SMALL
    return has_ends and all(mark in (".", "_", "__") or not mark.strip("-") for mark in marks)
