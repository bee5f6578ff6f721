"""The manifest of an entry: its fields, its bytes and its file.

A manifest file is ``magic, u16 format version, u64 body length, sha256 of the body, body`` (big endian), then
nothing or its signatures (`cache.signatures.trailer`); the body is one msgpack map of the fields of `Manifest`.
No extension types, no pickle: decoding runs no code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgpack
from msgspec import Struct

from gearcache.cache.files.trust import read_trusted
from gearcache.cache.keys.key import FORMAT_VERSION, Plain
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
_PRODUCER: dict[str, Callable[[object], bool]] = {
    "torch": lambda value: type(value) is str,
    "variants": lambda value: type(value) is int and 0 <= value <= MAX_ITEMS,
    "gears": lambda value: type(value) in (list, tuple) and all(type(text) is str for text in cast("list[str]", value)),
    "compile_seconds": lambda value: type(value) in (int, float) and 0 <= cast(float, value) <= MAX_SECONDS,
    "folders": lambda value: type(value) is bool,
}
_LEAVES = frozenset((type(None), bool, int, float, str, bytes))


class OtherFormat(CorruptEntry):
    """A manifest of another format version: this version cannot read it, and it is not damaged either."""


class Manifest(Struct, frozen=True):
    """Everything stored for one key, except the bytes of its blobs (sha256 -> size).

    Fields that commands compute with are checked when the manifest is read; payload and components are not.
    """

    name: str
    key_digest: str
    components: dict[str, Plain]
    payload: dict[str, Plain]
    blobs: dict[str, int]
    created: float
    producer: dict[str, Plain]


_FIELDS = Manifest.__struct_fields__


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest; tuples become lists. `TypeError` or `ValueError` for values that cannot be stored."""
    body_fields = {name: getattr(manifest, name) for name in _FIELDS}
    _check_plain(body_fields)
    problem = _check_fields(body_fields)
    if problem:
        raise ValueError(problem)
    try:
        body = cast(bytes, msgpack.packb(body_fields))
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
        # msgpack checks everything while it reads, in C where possible: a second walk would double the time of a
        # lookup. Timestamps bypass the hook and are refused by their length; msgpack bounds the nesting.
        body_fields = msgpack.unpackb(
            body,
            strict_map_key=True,
            object_hook=_check_names,
            ext_hook=_refuse_extension,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
        )
    # msgpack names some of its errors and adds that "other exceptions can be raised".
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise CorruptEntry(path, f"its body cannot be decoded: {error or type(error).__name__}") from error
    problem = _check_fields(body_fields)
    if problem:
        raise CorruptEntry(path, problem)
    return Manifest(**body_fields)


def _check_plain(value: object) -> None:
    level = [value]
    for _ in range(MAX_NESTING):
        below: list[object] = []
        for node in level:
            kind = type(node)
            if kind is dict:
                below += _check_names(cast("dict[str, object]", node)).values()
            elif kind is list or kind is tuple:
                below += cast("list[object]", node)
            elif kind not in _LEAVES:
                raise TypeError(f"a value of type `{kind.__qualname__}`")
        if not below:
            return
        level = below
    raise ValueError(f"nested more than {MAX_NESTING} deep")


def _check_names(mapping: dict[str, object]) -> dict[str, object]:
    # msgpack lets bytes pass as names even with `strict_map_key`.
    for name in mapping:
        if type(name) is not str:
            raise TypeError(f"a map key of type `{type(name).__qualname__}`")
    return mapping


def _refuse_extension(code: int, data: bytes) -> None:
    raise TypeError(f"an extension of type {code}")


def _check_fields(body_fields: object) -> str:
    """Return the fault of the top level, or an empty text."""
    if not isinstance(body_fields, dict) or sorted(body_fields) != sorted(_FIELDS):
        return f"its fields are not {', '.join(_FIELDS)}"
    if type(body_fields["key_digest"]) is not str or not is_digest(body_fields["key_digest"]):
        return "`key_digest` is not a sha256"
    label, _, digest = body_fields["name"].rpartition("-") if type(body_fields["name"]) is str else ("", "", "")
    if digest != body_fields["key_digest"] or not is_label(label):
        return "`name` is not the name of a method and its `key_digest`"
    # A NaN fails every comparison.
    if type(body_fields["created"]) is not float or not 0 <= body_fields["created"] <= MAX_TIME:
        return "`created` is not a time"
    for name in ("components", "payload", "blobs", "producer"):
        if type(body_fields[name]) is not dict:
            return f"`{name}` is not a map"
    for digest, size in body_fields["blobs"].items():
        if not is_digest(digest) or type(size) is not int or not 0 <= size <= MAX_BLOB_SIZE:
            return "`blobs` does not map sha256 to sizes"
    for name, value in body_fields["producer"].items():
        if name in _PRODUCER and not _PRODUCER[name](value):
            return f"`producer.{name}` is of another type, or beyond all bounds"
    return ""
