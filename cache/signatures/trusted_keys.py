"""The public keys whose signatures this host accepts, from `$GEARCACHE_TRUSTED_KEYS`; needs no package.

A key is ``name:base64``, optionally followed by ``from=2026-11-01`` and ``until=2027-01-01``. With these it is trusted
for entries created from the first day on and before the second one (UTC). The variable holds keys separated by blanks
(``name:base64;from=2026-11-01``), or the path of a file with one key a line, where `#` begins a comment.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from msgspec import Struct

from gearcache.cache.files.named_file import read_named
from gearcache.cache.signatures.key_pair import fingerprint
from gearcache.cache.signatures.trailer import PUBLIC_KEY_SIZE
from gearcache.errors import OptionError, UnsafePath

TRUSTED_KEYS_VARIABLE = "GEARCACHE_TRUSTED_KEYS"
#: The name of the HMAC key wherever a key name is needed.
HMAC_NAME = "hmac"
_MAX_FILE_SIZE = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BREAKS = re.compile(r"[;\s]+")
_SHOWN = 60
_MAX_MOMENT = 1e11
_ALLOWED = (
    "allowed are keys as `gearcache keys new` prints them, `name:base64`, each perhaps with `;from=2026-11-01` and "
    "`;until=2027-01-01`, with blanks between them, or the path of a file of such lines"
)
#: The y coordinates of the points of small order, as little-endian numbers: anyone can forge signatures of such keys.
_PRIME = 2**255 - 19
_ORDER_EIGHT = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset((0, 1, _PRIME - 1, _PRIME, _PRIME + 1, _ORDER_EIGHT, _PRIME - _ORDER_EIGHT))


class TrustedKey(Struct, frozen=True):
    """One public key; `start` and `end` are seconds since 1970, None for unbounded."""

    name: str
    public_key: bytes
    start: float | None = None
    end: float | None = None

    @property
    def fingerprint(self) -> str:
        """Return the text by which people distinguish it from others."""
        return fingerprint(self.public_key)

    @property
    def text(self) -> str:
        """The key as written in a file or variable, without its time."""
        return f"{self.name}:{base64.b64encode(self.public_key).decode()}"

    @property
    def has_time(self) -> bool:
        """Return whether it is trusted for a limited time only."""
        return self.start is not None or self.end is not None

    def covers(self, created: float) -> bool:
        """Return whether the key is trusted for an entry that was created at this moment."""
        return (self.start is None or created >= self.start) and (self.end is None or created < self.end)

    @property
    def time_text(self) -> str:
        """Return the time for which it is trusted: `from 2026-11-01 until 2027-01-01 (UTC)`."""
        bounds = (("from", self.start), ("until", self.end))
        return " ".join(f"{word} {moment_text(bound)}" for word, bound in bounds if bound is not None) + " (UTC)"


def trusted_keys(environ: Mapping[str, str]) -> tuple[TrustedKey, ...]:
    """Return the keys of the environment. `OptionError` names the variable, what is wrong and what is allowed.

    `UnsafePath` for a file that others may have changed.
    """
    value = environ.get(TRUSTED_KEYS_VARIABLE, "").strip()
    source = f"environment variable `{TRUSTED_KEYS_VARIABLE}`"
    if "PRIVATE KEY" in value:
        raise OptionError(f"{source} holds a private key, which nobody else may see; {_ALLOWED}")
    if value[:1] not in ("/", ".") and ":" in value:
        return _distinct([(source, _parse(item, source)) for item in value.split()])
    return _distinct(_read(Path(value), source)) if value else ()


def is_key_name(text: str) -> bool:
    """Return whether a key may have this name: up to 64 letters, digits and `._-`, none of these first; not `hmac`."""
    return _NAME.fullmatch(text) is not None and text != HMAC_NAME


def moment_text(moment: float) -> str:
    """Return a moment as `2026-11-01`, or with the time of the day where it is not midnight (UTC)."""
    text = datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return text.removesuffix("T00:00:00")


def _read(path: Path, source: str) -> list[tuple[str, TrustedKey]]:
    try:
        data, _ = read_named(path, _MAX_FILE_SIZE)
        text = data.decode()
    except OSError as error:
        problem = f"{source} is {_excerpt(str(path))}, which cannot be read: {error.strerror}"
        raise OptionError(f"{problem}; {_ALLOWED}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{source}: the file `{path}` is no text in UTF-8; {_ALLOWED}") from error
    except UnsafePath as error:
        raise UnsafePath(path, error.reason, "it says whom this host trusts: only you or root may write it") from error
    if len(data) > _MAX_FILE_SIZE:
        raise OptionError(f"{source}: the file `{path}` has more than {_MAX_FILE_SIZE} bytes; {_ALLOWED}")
    if "PRIVATE KEY" in text:
        raise OptionError(f"{source}: the file `{path}` holds a private key; {_ALLOWED}")
    placed_keys = []
    for number, line in enumerate(text.splitlines(), 1):
        if item := line.partition("#")[0].strip():
            place = f"{source}: `{path}`, line {number},"
            placed_keys.append((place, _parse(item, place)))
    return placed_keys


def _parse(item: str, source: str) -> TrustedKey:
    key, *settings = [part for part in _BREAKS.split(item) if part]
    name, _, encoded = key.partition(":")
    if not is_key_name(name):
        raise OptionError(
            f"{source} names a key {_excerpt(name)}; a name is 1 to 64 letters, digits and `._-`, and not `{HMAC_NAME}`"
        )
    public_key = _decode(encoded)
    if public_key is None:
        raise OptionError(f"{source} holds {_excerpt(key)}, which is no public key of 32 bytes in base64; {_ALLOWED}")
    if int.from_bytes(public_key, "little") & ((1 << 255) - 1) in _SMALL_ORDER:
        raise OptionError(f"{source} holds {_excerpt(key)}, a key for which anybody can sign; {_ALLOWED}")
    bounds: dict[str, float] = {}
    for setting in settings:
        word, _, moment = setting.partition("=")
        if word not in ("from", "until") or word in bounds:
            raise OptionError(f"{source} holds {_excerpt(setting)} behind the key `{name}`; {_ALLOWED}")
        bounds[word] = _moment(moment, f"{source} says {_excerpt(setting)} of the key `{name}`")
    start, end = bounds.get("from"), bounds.get("until")
    if start is not None and end is not None and start >= end:
        raise OptionError(f"{source} says of the key `{name}` that it is trusted until a moment before its first one")
    return TrustedKey(name, public_key, start, end)


def _decode(text: str) -> bytes | None:
    try:
        data = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if len(data) == PUBLIC_KEY_SIZE and base64.b64encode(data).decode() == text else None


def _moment(text: str, source: str) -> float:
    try:
        # Python 3.10 does not parse the Z.
        moment = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
        seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).timestamp()
        if not 0 <= seconds <= _MAX_MOMENT:
            raise ValueError(seconds)
    except ValueError:
        allowed = "a day or a moment in UTC is allowed: `2026-11-01`, `2026-11-01T12:00:00`"
        raise OptionError(f"{source}; {allowed}") from None
    return seconds


def _distinct(placed_keys: list[tuple[str, TrustedKey]]) -> tuple[TrustedKey, ...]:
    """Refuse a name or key that is given twice: its time, or the signer, would be ambiguous."""
    names: set[str] = set()
    keys: set[bytes] = set()
    for source, key in placed_keys:
        if key.name in names or key.public_key in keys:
            what = "name" if key.name in names else f"key, {key.fingerprint},"
            raise OptionError(f"{source} lists `{key.name}`, whose {what} is there already; each may be there once")
        names.add(key.name)
        keys.add(key.public_key)
    return tuple(key for _, key in placed_keys)


def _excerpt(text: str) -> str:
    return f"`{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}`"
