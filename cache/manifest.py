"""The manifest of an entry: its fields, its bytes and its file.

A manifest file is ``magic, u16 format version, u64 body length, sha256 of the body, body`` (big endian), then
nothing or its signatures (`cache.signatures.trailer`); the body is one msgpack map of the fields of `Manifest`.
No pickle: decoding runs no code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, msgpack
from msgspec.structs import asdict

from gearcache.cache.files.trust import read_trusted
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import is_digest, is_label
from gearcache.errors import CacheError, CorruptEntry, UnsignedEntry

if TYPE_CHECKING:
    from gearcache.cache.signatures.signature import Signer
    from gearcache.cache.signatures.trailer import Signed

MAGIC = b"GEARCACHE\0"
MAX_MANIFEST_SIZE = 256 << 20
MAX_NESTING = 64
MAX_ITEMS = 1 << 20
#: Bounds of values that are summed, compared and printed, far above realistic ones: a manifest beyond them is damaged.
MAX_BLOB_SIZE = 1 << 43
MAX_TIME = 1e11
MAX_SECONDS = 1e10

_HEADER = struct.Struct(f">{len(MAGIC)}sHQ32s")
_PRODUCER: dict[str, Callable[[Any], bool]] = {
    "torch": lambda value: type(value) is str,
    "variants": lambda value: type(value) is int and 0 <= value <= MAX_ITEMS,
    "gears": lambda value: type(value) in (list, tuple) and all(type(text) is str for text in value),
    "compile_seconds": lambda value: type(value) in (int, float) and 0 <= value <= MAX_SECONDS,
    "folders": lambda value: type(value) is bool,
}
_LEAVES = frozenset((type(None), bool, int, float, str, bytes))


class OtherFormat(CorruptEntry):
    """A manifest of another format version: this version cannot read it, and it is not damaged either."""


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything stored for one key, except the bytes of its blobs (sha256 -> size).

    Fields that commands compute with are checked when the manifest is read; payload and components are not.
    """

    name: str
    key_digest: str
    components: dict[str, Any]
    payload: dict[str, Any]
    blobs: dict[str, int]
    created: float
    producer: dict[str, Any]


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest; tuples become lists. `TypeError` or `ValueError` for values that cannot be stored."""
    _check_plain(asdict(manifest))
    problem = _check_fields(manifest)
    if problem:
        raise ValueError(problem)
    try:
        body = msgpack.encode(manifest)
    except OverflowError as error:
        raise ValueError("integers of a manifest have at most 64 bits") from error
    data = _HEADER.pack(MAGIC, FORMAT_VERSION, len(body), sha256(body).digest()) + body
    if len(data) > MAX_MANIFEST_SIZE:
        raise ValueError(f"a manifest has at most {MAX_MANIFEST_SIZE} bytes, got {len(data)}")
    return data


def read_manifest(path: Path, key_digest: str, signer: Signer | None = None) -> Manifest:
    """Return the manifest at a path: only of a file that no other user could write, and signed if there is a signer.

    Raises `CorruptEntry` (also when it belongs to another key), `OtherFormat`, `UnsafePath`, `UnsignedEntry` or
    `OSError`.
    """
    data = read_trusted(path, MAX_MANIFEST_SIZE)
    manifest = decode_manifest(data, path)
    if manifest.key_digest != key_digest:
        raise CorruptEntry(path, f"it belongs to the key {manifest.key_digest}")
    if signer is not None and not signer.has_signed(data):
        from gearcache.cache.signatures.signature import KEY_FILE_VARIABLE

        remedy = "let it be compiled again, or import a bundle that was exported with this key"
        raise UnsignedEntry(path, f"it is not signed with the key of `{KEY_FILE_VARIABLE}`", remedy)
    return manifest


def read_manifest_to_copy(path: Path) -> tuple[bytes, Manifest]:
    """Return a manifest as bytes and decoded; raises a `CacheError` where it is unreadable or not sound."""
    try:
        data = read_trusted(path, MAX_MANIFEST_SIZE)
    except OSError as error:
        raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error
    return data, decode_manifest(data, path)


def decode_manifest(data: bytes, path: Path) -> Manifest:
    """Read a manifest back; any fault is a `CorruptEntry` for `path`, another version `OtherFormat`.

    Signatures are skipped: a caller that needs one checks it.
    """
    if len(data) > MAX_MANIFEST_SIZE:
        raise CorruptEntry(path, f"it has {len(data)} bytes, more than the limit of {MAX_MANIFEST_SIZE}")
    if len(data) < _HEADER.size:
        raise CorruptEntry(path, f"it is cut off after {len(data)} bytes")
    magic, version, length, digest = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptEntry(path, "it does not start as a manifest")
    if version != FORMAT_VERSION:
        raise OtherFormat(path, f"written by format {version}, this is format {FORMAT_VERSION}")
    end = _HEADER.size + length
    if len(data) != end and not _ends_signed(data, end):
        rest_size = len(data) - _HEADER.size
        raise CorruptEntry(path, f"it holds {rest_size} bytes where {length} and perhaps signatures were written")
    body = memoryview(data)[_HEADER.size : end]
    if sha256(body).digest() != digest:
        raise CorruptEntry(path, "its content does not match its sha256")
    return _decode_body(body, path)


def _ends_signed(data: bytes, end: int) -> bool:
    # Imported here: most caches are not signed.
    from gearcache.cache.signatures.trailer import is_trailer

    return is_trailer(data, end)


def signed_parts(data: bytes) -> Signed:
    """Return the signatures of a manifest that `decode_manifest` accepts, and the signed bytes; checks no signer."""
    from gearcache.cache.signatures.trailer import split

    return split(data, _HEADER.size + int(_HEADER.unpack_from(data)[2]))


def is_signed(data: bytes) -> bool:
    """Whether a signature of any kind follows a manifest that `decode_manifest` accepts."""
    return len(data) > _HEADER.size + int(_HEADER.unpack_from(data)[2])


def _decode_body(body: memoryview, path: Path) -> Manifest:
    try:
        manifest = msgpack.decode(body, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise CorruptEntry(path, f"its body cannot be decoded: {error}") from error
    problem = _check_fields(manifest)
    if problem:
        raise CorruptEntry(path, problem)
    return manifest


def _check_plain(value: Any) -> None:
    """Raise for a value that would not come back as it is."""
    level = [value]
    for _ in range(MAX_NESTING):
        below: list[Any] = []
        for node in level:
            kind = type(node)
            if kind is dict:
                if any(type(name) is not str for name in node):
                    raise TypeError("a map key that is no text")
                below += node.values()
            elif kind is list or kind is tuple:
                below += node
            elif kind not in _LEAVES:
                raise TypeError(f"a value of type `{kind.__qualname__}`")
        if not below:
            return
        level = below
    raise ValueError(f"nested more than {MAX_NESTING} deep")


def _check_fields(manifest: Manifest) -> str:
    """Return the fault of a field, or an empty text."""
    if not is_digest(manifest.key_digest):
        return "`key_digest` is not a sha256"
    label, _, digest = manifest.name.rpartition("-")
    if digest != manifest.key_digest or not is_label(label):
        return "`name` is not the name of a method and its `key_digest`"
    if not 0 <= manifest.created <= MAX_TIME:  # a NaN fails every comparison
        return "`created` is not a time"
    for digest, size in manifest.blobs.items():
        if not is_digest(digest) or not 0 <= size <= MAX_BLOB_SIZE:
            return "`blobs` does not map sha256 to sizes"
    for name, value in manifest.producer.items():
        if name in _PRODUCER and not _PRODUCER[name](value):
            return f"`producer.{name}` is of another type, or beyond all bounds"
    return ""
