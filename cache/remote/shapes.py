"""Shapes that processes have met, as objects of a tier: each process has its own, and none replaces another one's.

An object is called `v<format>/shapes/<host>/<process>-<sha256>.msgpack`. It has the form of a manifest, of a key that
no method has, so it is signed, bounded and decoded as one; its payload holds counts since the process began. Of several
of one process the one with the highest `sequence` counts. What is read comes from outside: all of it is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from gearcache.cache.key import Plain
from gearcache.cache.layout import is_digest
from gearcache.cache.manifest import Manifest, decode_manifest, encode_manifest
from gearcache.cache.remote.names import SHAPES
from gearcache.cache.remote.protocol import Deadline
from gearcache.cache.remote.read_each import read_each
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.errors import CacheError, CorruptEntry

#: Objects of a tier and of a host, methods of an object, shapes and gears of a method, dims of a shape.
MOST_OBJECTS = 4096
MOST_OF_HOST = 64
MOST_METHODS = 64
MOST_SHAPES = 512
MOST_GEARS = 100  # no method has more
MOST_DIMS = 16
MAX_BYTES = 4 << 20
MAX_SIZE = 1 << 40
MAX_CALLS = 1 << 53
#: Engines that can forget what is older.
LIFETIME_SECONDS = 90 * 86400.0

#: The key of no method: nothing takes such an object for an entry, nor an entry for one.
_KEY = sha256(b"gearcache: shapes that processes have met").hexdigest()
_LABEL = "shapes"
_IDENTITY = re.compile(r"[0-9a-f]{16}")
_FILE = re.compile(r"([0-9a-f]{16})-([0-9a-f]{64})\.msgpack")
_MOST_TEXT = 200


@dataclass(frozen=True)
class MethodShapes:
    """What a process has met of a method: calls by the sizes of some dims, and the gears that it had.

    A gear has None where it leaves a dim open. `others` are calls of shapes beyond the limit; `full_name` has module
    and class as well, as two classes may have one name.
    """

    method: str
    dims: tuple[tuple[str, int], ...]
    gears: tuple[tuple[int | None, ...], ...]
    shapes: Mapping[tuple[int, ...], int]
    others: int = 0
    full_name: str = ""

    @property
    def is_tellable(self) -> bool:
        """Whether it may be told: dims that others take, and sizes that exist."""
        return (
            0 < len(self.dims) <= MOST_DIMS
            and bool(self.method)
            and self.method.isprintable()
            and self.full_name.isprintable()
            and all(path and path.isprintable() and len(path) <= _MOST_TEXT for path, _ in self.dims)
            and all(0 <= size <= MAX_SIZE for shape in self.shapes for size in shape)
        )

    def to_plain(self) -> dict[str, Plain]:
        """Return it as data, bounded: the largest shape of each dim, the most frequent ones, the sum of the others."""
        met = {shape: calls for shape, calls in self.shapes.items() if calls}
        largest = {max(met, key=lambda shape: (shape[index], shape)) for index in range(len(self.dims)) if met}
        ordered = sorted(met.items(), key=lambda item: (item[0] not in largest, -item[1], item[0]))
        left = sum(calls for _, calls in ordered[MOST_SHAPES:])
        return {
            "method": self.method[:_MOST_TEXT],
            "full_name": self.full_name[-_MOST_TEXT:],
            "dims": [[path, dim] for path, dim in self.dims],
            "gears": [list(gear) for gear in self.gears[:MOST_GEARS]],
            "shapes": [[list(shape), min(calls, MAX_CALLS)] for shape, calls in ordered[:MOST_SHAPES]],
            "others": min(self.others + left, MAX_CALLS),
        }


@dataclass(frozen=True)
class ProcessShapes:
    """What one process has met; `created` in seconds since 1970."""

    host: str
    process: str
    sequence: int
    created: float
    methods: tuple[MethodShapes, ...]


def encode_shapes(found: ProcessShapes, trust: Trust) -> tuple[str, bytes]:
    """Return name and bytes of an object, signed if this host signs; `CacheError` where a key cannot be used."""
    payload: dict[str, Plain] = {
        "host": found.host,
        "process": found.process,
        "sequence": found.sequence,
        "methods": [each.to_plain() for each in found.methods[:MOST_METHODS]],
    }
    data = trust.signed(encode_manifest(Manifest(f"{_LABEL}-{_KEY}", _KEY, {}, payload, {}, found.created, _PRODUCER)))
    if len(data) > MAX_BYTES:
        raise CacheError(f"the shapes that were met have {len(data)} bytes, more than the limit of {MAX_BYTES}")
    return f"{SHAPES}{found.host}/{found.process}-{sha256(data).hexdigest()}.msgpack", data


_PRODUCER: dict[str, Plain] = {"torch": "", "variants": 0, "gears": [], "compile_seconds": 0.0}


def decode_shapes(tier: Tier, name: str, data: bytes, trust: Trust) -> ProcessShapes:
    """Return an object as it came from a tier; `CorruptEntry` or `UnsignedEntry` where it may not be used."""
    source = tier.path(name)
    identity = parse_shapes_name(name)
    if identity is None or sha256(data).hexdigest() != identity[2]:
        raise CorruptEntry(source, f"its {len(data)} bytes are not those that its name tells")
    manifest = decode_manifest(data, source)
    if manifest.key_digest != _KEY or manifest.blobs:
        raise CorruptEntry(source, "it holds no shapes")
    trust.check(data, str(source), unsigned=tier.url.unsigned)
    try:
        found = _checked(manifest.payload, manifest.created)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptEntry(source, f"its shapes are none: {error}") from error
    if (found.host, found.process) != identity[:2]:
        raise CorruptEntry(source, "it is of another process than its name tells")
    return found


def parse_shapes_name(name: str) -> tuple[str, str, str] | None:
    """Return host, process and sha256 of the name of an object; None for any other name."""
    host, slash, file = name.removeprefix(SHAPES).partition("/")
    parts = _FILE.fullmatch(file)
    if not name.startswith(SHAPES) or not slash or not _IDENTITY.fullmatch(host) or parts is None:
        return None
    return (host, parts[1], parts[2]) if is_digest(parts[2]) else None


class ShapesTier:
    """The shapes in one tier; operations raise `RemoteError`."""

    def __init__(self, tier: Tier, trust: Trust) -> None:
        self.tier = tier
        self._trust = trust
        #: Why objects were refused, by name.
        self.refused: dict[str, str] = {}

    def names(self, deadline: Deadline) -> list[str]:
        """List the objects; what is called otherwise is left out."""
        found = self.tier.ask(lambda remote: remote.names(SHAPES, MOST_OBJECTS + 1, deadline))
        return [name for name in sorted(found) if parse_shapes_name(name) is not None]

    def read(self, names: Sequence[str], deadline: Deadline) -> dict[str, ProcessShapes]:
        """Return what objects hold by name, without those that are gone or refused."""
        self.refused = {}
        if not names:
            return {}
        read, faults = self.tier.ask(lambda remote: read_each(remote, names, MAX_BYTES, deadline))
        self.refused |= {name: str(error) for name, error in faults.items()}
        found: dict[str, ProcessShapes] = {}
        for name, data in read.items():
            try:
                found[name] = decode_shapes(self.tier, name, data, self._trust)
            except CacheError as error:
                self.refused[name] = str(error)
        return found

    def latest(self, deadline: Deadline) -> list[ProcessShapes]:
        """Return the last of what each process has told."""
        last: dict[tuple[str, str], ProcessShapes] = {}
        for each in self.read(self.names(deadline)[:MOST_OBJECTS], deadline).values():
            known = last.get((each.host, each.process))
            if known is None or each.sequence > known.sequence:
                last[each.host, each.process] = each
        return list(last.values())

    def send(self, found: ProcessShapes, before: str, deadline: Deadline) -> str:
        """Store what a process has met, and remove what it told `before`; returns the name, empty where there is no
        room. `CacheError` where this host cannot sign and the tier asks for signatures."""
        if not self._trust.signs and not self.tier.url.unsigned:
            raise CacheError(
                f"{self.tier.label}: shapes that nobody signed are refused there: set a key that signs, or write "
                "`?unsigned=1` behind the URL if all who can write there may tell of shapes"
            )
        name, data = encode_shapes(found, self._trust)
        if name == before:
            return name
        if not before and not self._make_room(found.host, deadline):
            return ""
        self.tier.ask(lambda remote: remote.put(name, data, deadline, lifetime=LIFETIME_SECONDS))
        if before:
            self.tier.ask(lambda remote: remote.delete(before, deadline))
        return name

    def _make_room(self, host: str, deadline: Deadline) -> bool:
        """Whether one more object may come; those of this host that are too many, the oldest, go."""
        names = self.names(deadline)
        own = [name for name in names if name.startswith(f"{SHAPES}{host}/")]
        if len(own) >= MOST_OF_HOST:
            created = {name: each.created for name, each in self.read(own, deadline).items()}
            oldest = sorted(own, key=lambda name: created.get(name, 0.0))[: len(own) - MOST_OF_HOST + 1]
            self.remove(oldest, deadline)
            return True
        return len(names) < MOST_OBJECTS

    def prune(self, before: float, deadline: Deadline, *, dry_run: bool) -> list[str]:
        """Remove what was told before a moment, in seconds since 1970; returns the names. What cannot be read stays."""
        found = self.read(self.names(deadline), deadline)
        old = sorted(name for name, each in found.items() if each.created < before)
        if not dry_run:
            self.remove(old, deadline)
        return old

    def remove(self, names: Sequence[str], deadline: Deadline) -> None:
        """Remove objects."""
        for name in names:
            self.tier.ask(lambda remote, name=name: remote.delete(name, deadline))  # type: ignore[misc]


def _checked(payload: Mapping[str, Any], created: float) -> ProcessShapes:
    methods = _list(payload["methods"], MOST_METHODS)
    return ProcessShapes(
        host=_text(payload["host"], _IDENTITY.fullmatch),
        process=_text(payload["process"], _IDENTITY.fullmatch),
        sequence=_number(payload["sequence"], MAX_CALLS),
        created=created,
        methods=tuple(_method(row) for row in methods),
    )


def _method(row: Any) -> MethodShapes:
    if not isinstance(row, dict):
        raise TypeError("a method is no map")
    dims = tuple((_text(path, str.isprintable), _number(dim, 64)) for path, dim in _list(row["dims"], MOST_DIMS))
    gears = tuple(
        tuple(None if size is None else _number(size, MAX_SIZE) for size in _of_length(gear, len(dims)))
        for gear in _list(row["gears"], MOST_GEARS)
    )
    shapes: dict[tuple[int, ...], int] = {}
    for sizes, calls in _list(row["shapes"], MOST_SHAPES):
        shape = tuple(_number(size, MAX_SIZE) for size in _of_length(sizes, len(dims)))
        if _number(calls, MAX_CALLS):
            shapes[shape] = shapes.get(shape, 0) + calls
    method, others = _text(row["method"], str.isprintable), _number(row["others"], MAX_CALLS)
    full_name = _text(row["full_name"], str.isprintable) if row.get("full_name") else ""
    return MethodShapes(method, dims, gears, shapes, others, full_name)


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, (list, tuple)) or len(value) > most:
        raise TypeError(f"a list is none, or longer than {most}")
    return list(value)


def _of_length(value: Any, length: int) -> list[Any]:
    if len(_list(value, length)) != length:
        raise ValueError(f"a row has not {length} sizes")
    return list(value)


def _number(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"a number is none, or not in 0 to {most}")
    return value


def _text(value: Any, is_right: Callable[[str], object]) -> str:
    if not isinstance(value, str) or not value or len(value) > _MOST_TEXT or not is_right(value):
        raise ValueError("a text is none, is too long, or has letters that it may not have")
    return value
