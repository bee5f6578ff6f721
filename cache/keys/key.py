"""The key of an entry: named components, and the difference of two keys."""

from __future__ import annotations

import string
from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from hashlib import sha256

from msgspec import Struct

from gearcache.cache.keys.encoding import Encodable as Encodable
from gearcache.cache.keys.encoding import Plain as Plain
from gearcache.cache.keys.encoding import encode as encode
from gearcache.cache.keys.encoding import lower as lower
from gearcache.errors import UnkeyableValue

FORMAT_VERSION = 7
"""Version of the key scheme, the manifest and the folder names; exists only here."""

MAX_LABEL_LENGTH = 80
MAX_SHOWN = 120
_SHOWN_DIGITS = 12

_SAFE_LETTERS = frozenset(string.ascii_letters + string.digits + "_.")


class CacheKey(Struct, frozen=True, eq=False, dict=True):
    """The identity of an entry, known before tracing.

    The label is for people: it is part of the file name, not of the digest.  Components must not change after
    the digest was read.  Immutable, so it may be shared by threads.
    """

    label: str
    components: tuple[tuple[str, Encodable], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.components]
        if len(set(names)) != len(names):
            raise ValueError(f"a key names each component once, got {names}")

    @staticmethod
    def of_stored(label: str, digest: str, components: Mapping[str, Plain]) -> CacheKey:
        """Return the key of a stored entry: its components are plain by then, so that they do not give the digest."""
        key = CacheKey(label, tuple(components.items()))
        vars(key)["digest"] = digest
        return key

    @cached_property
    def _encoded(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((name, encode(name, value)) for name, value in self.components)

    @cached_property
    def digest(self) -> str:
        """Sha256 in full, over the format version and the components in their order."""
        out = [encode("format", FORMAT_VERSION)]
        for name, encoded in self._encoded:
            out += encode("name", name), encoded
        return sha256(b"".join(out)).hexdigest()

    @cached_property
    def name(self) -> str:
        """`<Class.method>-<digest>`, safe as the name of a folder."""
        return f"{self.safe_label}-{self.digest}"

    @property
    def short_name(self) -> str:
        """The name for messages, which commands take too: with the first digits of the digest."""
        return short_name(self.name)

    @property
    def safe_label(self) -> str:
        """The label reduced to `[A-Za-z0-9_.]`; a long one keeps its end, where the method is."""
        label = self.label[-MAX_LABEL_LENGTH:]
        safe = "".join(letter if letter in _SAFE_LETTERS else "_" for letter in label)
        return safe.lstrip(".") or "_"

    def lowered(self) -> dict[str, Plain]:
        """The components as a manifest stores them."""
        return {name: lower(value) for name, value in self.components}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CacheKey):
            return NotImplemented
        return (self.label, self.digest) == (other.label, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


def short_name(name: str) -> str:
    """Return the name of an entry, with its ranks or without, for messages: with the first digits only."""
    base, slash, ranks = name.partition("/")
    label, _, digest = base.rpartition("-")
    return f"{label}-{digest[:_SHOWN_DIGITS]}{slash}{ranks}"


class Missing(Enum):
    """The side of a difference that has no value at all (`None` is a value)."""

    MISSING = "missing"


class Difference(Struct, frozen=True):
    """The first leaf in which a wanted key and a stored one differ; `path` is within the component."""

    component: str
    path: str
    wanted: Plain | Missing
    stored: Plain | Missing

    def __str__(self) -> str:
        where = f"{self.component}.{self.path}" if self.path else self.component
        # From a manifest of another process: names in it may be anything.
        where = where if where.isprintable() else repr(where)
        return f"`{where}` is {_show(self.wanted)}, stored is {_show(self.stored)}"


def first_difference(wanted: Mapping[str, Plain], stored: Mapping[str, Plain]) -> Difference | None:
    """Compare lowered components, in the wanted order, and name the first leaf that differs."""
    for component in (*wanted, *(name for name in stored if name not in wanted)):
        ours = wanted.get(component, Missing.MISSING)
        theirs = stored.get(component, Missing.MISSING)
        if not _same(ours, theirs):
            path, left, right = _dive(ours, theirs)
            return Difference(component, ".".join(path), left, right)
    return None


def _same(wanted: Plain | Missing, stored: Plain | Missing) -> bool:
    if isinstance(wanted, Missing) or isinstance(stored, Missing):
        return wanted is stored
    try:
        return encode("", wanted) == encode("", stored)
    except UnkeyableValue:  # from a manifest of another process: no key can hold this value, as ours was encoded before
        return False


def _dive(wanted: Plain | Missing, stored: Plain | Missing) -> tuple[list[str], Plain | Missing, Plain | Missing]:
    path: list[str] = []
    while True:
        ours, theirs = _children(wanted), _children(stored)
        if ours is None or theirs is None or isinstance(wanted, Mapping) is not isinstance(stored, Mapping):
            return path, wanted, stored
        for step in (*ours, *(name for name in theirs if name not in ours)):
            left, right = ours.get(step, Missing.MISSING), theirs.get(step, Missing.MISSING)
            if not _same(left, right):
                path.append(step)
                wanted, stored = left, right
                break


def _children(value: Plain | Missing) -> dict[str, Plain] | None:
    if isinstance(value, dict):
        return value
    if isinstance(value, (list, tuple)):
        return {str(index): item for index, item in enumerate(value)}
    return None


def _show(value: Plain | Missing) -> str:
    if value is Missing.MISSING:
        return "missing"
    text = repr(value)
    return f"`{text}`" if len(text) <= MAX_SHOWN else f"`{text[:MAX_SHOWN]}...`"
