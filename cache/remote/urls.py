"""Parse tiers as users write them: a list of URLs, in the order in which they are asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from msgspec import Struct

from gearcache.cache.layout import REMOTES_VARIABLE
from gearcache.cache.remote.engines.protocol import Remote
from gearcache.errors import OptionError

#: Seconds that one lookup may take in a tier, all of its requests together.
BUDGET_SECONDS = 10.0
_MOST_BUDGET = 3600.0
_EXTRAS = {"s3": "s3", "gs": "s3", "az": "s3", "redis": "redis", "rediss": "redis"}
_BUCKETS = ("s3", "gs", "az")
_READ_ONLY = ("https", "http")


class TierURL(Struct, frozen=True):
    """One tier as it was written: its address, whether it may be written, and the seconds of a lookup."""

    url: str
    read_only: bool = False
    #: Whether unsigned entries from it are accepted.
    unsigned: bool = False
    budget: float = BUDGET_SECONDS
    options: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """Return its name in messages and counts, without passwords."""
        scheme, _, rest = self.url.partition(":")
        if scheme == "folder":
            return f"folder:{os.path.abspath(os.path.expanduser(rest))}"
        parts = urlsplit(self.url)
        label = f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        # Buckets of one name at two endpoints are two tiers.
        place = urlsplit(dict(self.options).get("endpoint", "")).netloc.rpartition("@")[2]
        return f"{label}?endpoint={place}" if place else label

    @property
    def scheme(self) -> str:
        """Return the kind of its engine."""
        return self.url.partition(":")[0]

    def open(self) -> Remote:
        """Return the tier, without a request; `OptionError` where the package for it is not installed."""
        return _ENGINES[self.scheme](self)


def parse_urls(remotes: str | Sequence[str] | None, source: str) -> list[TierURL]:
    """Return the tiers of a text with blanks between them, or of a list; `OptionError` names the invalid one.

    `source` names their origin: a variable or an option.
    """
    if remotes is None:
        return []
    if not isinstance(remotes, (str, list, tuple)):
        raise OptionError(
            f"{source} is of type {type(remotes).__name__}; it must be a text such as 's3://bucket/prefix', or a list "
            "or tuple of those"
        )
    texts = remotes.split() if isinstance(remotes, str) else list(remotes)
    # A password may contain a blank: then no part of the text may be repeated.
    may_show = not any(isinstance(text, str) and "@" in text for text in texts)
    return [_parse(text, source, may_show=may_show) for text in texts]


def masked(text: str) -> str:
    """Return tiers by their labels, without passwords and keys, for printed settings; `scheme:…` for an invalid URL.

    A password may contain a blank, so the tier before an invalid one is not shown either.
    """
    labels: list[str] = []
    for part in text.split():
        try:
            labels.append(_parse(part, REMOTES_VARIABLE).label)
        except ValueError:  # an `OptionError`, or an endpoint that is not a URL
            labels = labels[:-1] + [_scheme_of(label) for label in labels[-1:]] + [_scheme_of(part)]
    return " ".join(labels)


def _scheme_of(text: str) -> str:
    scheme, colon, _ = text.partition(":")
    return f"{scheme}:…" if colon and scheme in _ENGINES else "…"


def _parse(text: Any, source: str, *, may_show: bool = False) -> TierURL:
    if not isinstance(text, str):
        # Its representation may contain a password.
        kind = type(text).__name__
        raise OptionError(f"{source} holds something of type {kind}; a tier is a text such as 's3://bucket/prefix'")
    if any(f",{name}:" in text for name in _ENGINES):
        raise OptionError(f"{source} names several tiers with commas between them; tiers are separated by blanks")
    scheme, colon, rest = text.partition(":")
    if not colon or scheme not in _ENGINES:
        # A setting may be a secret.
        shown_text = text.partition("?")[0] if may_show else f"{scheme}:…" if colon and scheme.isalnum() else "…"
        raise OptionError(
            f"{source} names the tier `{shown_text}`; a tier begins with {', '.join(f'{name}:' for name in _ENGINES)}"
        )
    if scheme == "folder":
        path, _, query = rest.partition("?")
        url = f"folder:{path}"
        if not path:
            raise OptionError(f"{source} names the tier `folder:` without a path")
    else:
        parts = _split(text, _shown(text, may_show=may_show), source)
        query, url = parts.query, parts._replace(query="", fragment="").geturl()
        if not parts.hostname:
            raise OptionError(f"{source} names the tier `{scheme}:` without a host or bucket: `{scheme}://name/…`")
        if scheme in _READ_ONLY and parts.netloc.rpartition("@")[1]:
            raise OptionError(f"{source}: the tier `{scheme}:` has a name or password, which no request would send")
        if scheme in ("redis", "rediss") and parts.path.strip("/") and not parts.path.strip("/").isdecimal():
            shown_text = parts.path if may_show else "…"
            raise OptionError(f"{source}: the tier `{scheme}:` has the database `{shown_text}`; it must be a number")
        if scheme in _BUCKETS and "@" in parts.netloc:
            raise OptionError(
                f"{source}: the tier `{scheme}:` has a name or password in its URL; credentials of buckets belong into "
                "the environment, as `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"
            )
    read_only, unsigned, budget, options = scheme in _READ_ONLY, False, BUDGET_SECONDS, []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "read_only":
            read_only = _flag(name, value, source) or scheme in _READ_ONLY
        elif name == "unsigned":
            unsigned = _flag(name, value, source)
        elif name == "budget":
            budget = _seconds(value, source)
        elif scheme in _BUCKETS:
            if name == "endpoint":
                _check_endpoint(value, scheme, source)
            options.append((name, value))
        else:
            # A name without a value, or before an `@`, may be a part of a password.
            setting = name if value and "@" not in query else "…"
            tier = _shown(text, may_show=may_show)
            raise OptionError(
                f"{source}: the tier `{tier}` has no setting `{setting}`; it has read_only, unsigned and budget"
            )
    return TierURL(url, read_only, unsigned, budget, tuple(options))


def _shown(text: str, *, may_show: bool) -> str:
    """Return a tier for an error, without its settings: its password is hidden, or all but the scheme where the
    password may be anywhere in the text.
    """
    scheme, _, rest = text.partition(":")
    address, _, query = rest.partition("?")
    user, at, host = address.removeprefix("//").rpartition("@")
    if at and not {"/", "#"}.intersection(user) and "@" not in query:
        name, colon, _ = user.partition(":")
        return f"{scheme}://{f'{name}:' if colon else ''}…@{host}"
    return f"{scheme}:{address}" if may_show else f"{scheme}:"


def _split(text: str, shown: str, source: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port  # reading it checks that it is valid
    except ValueError:
        raise OptionError(f"{source} names the tier `{shown}` with a host or port that is none") from None
    return parts


def _check_endpoint(value: str, scheme: str, source: str) -> None:
    parts = _split(value, f"{scheme}:", source)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise OptionError(
            f"{source}: the tier `{scheme}:` has an `endpoint` that is none: it is `https://host:port`, without a name "
            "or password; credentials of buckets belong into the environment"
        )


def _flag(name: str, value: str, source: str) -> bool:
    if value not in ("0", "1"):
        raise OptionError(f"{source}: `{name}` is {value!r}; it must be 0 or 1")
    return value == "1"


def _seconds(value: str, source: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= _MOST_BUDGET:
        raise OptionError(f"{source}: `budget` is {value!r}; it must be seconds, above 0 and at most {_MOST_BUDGET:g}")
    return seconds


def _folder(tier: TierURL) -> Remote:
    from gearcache.cache.remote.engines.folder import FolderRemote

    return FolderRemote(tier.url.partition(":")[2])


def _bucket(tier: TierURL) -> Remote:
    _need("obstore", tier)
    from gearcache.cache.remote.engines.objects import ObjectRemote

    return ObjectRemote(tier.url, dict(tier.options))


def _redis(tier: TierURL) -> Remote:
    _need("redis", tier)
    from gearcache.cache.remote.engines.redis_server import RedisRemote

    return RedisRemote(tier.url)


def _web(tier: TierURL) -> Remote:
    from gearcache.cache.remote.engines.web import WebRemote

    return WebRemote(tier.url)


def _need(package: str, tier: TierURL) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        extra = _EXTRAS[tier.scheme]
        raise OptionError(f"a tier `{tier.scheme}:` needs the package {package}: `pip install 'gearcache[{extra}]'`")


_ENGINES: dict[str, Callable[[TierURL], Remote]] = {
    "folder": _folder,
    "s3": _bucket,
    "gs": _bucket,
    "az": _bucket,
    "redis": _redis,
    "rediss": _redis,
    "https": _web,
    "http": _web,
}
