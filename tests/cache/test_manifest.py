"""Manifests: read back as written, and any damage is told apart."""

from __future__ import annotations

import struct
from hashlib import sha256
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from gearcache.cache import manifest as manifest_module
from gearcache.cache.keys.encoding import encode
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.manifest import (
    MAGIC,
    MAX_NESTING,
    Manifest,
    OtherFormat,
    decode_manifest,
    encode_manifest,
)
from gearcache.errors import CorruptEntry
from tests.support.sampled import examples

PATH = Path("entry/manifest.msgpack")
DIGEST = "0123456789abcdef" * 4
SAMPLE = Manifest(
    name=f"Model.decode-{DIGEST}",
    key_digest=DIGEST,
    components={"config": {"mode": "max"}, "gears": [[1, 2], None]},
    payload={"frame": b"\x00\xff", "variants": [{"scalars": [1, True, 1.5]}]},
    blobs={DIGEST: 10},
    created=1.5,
    producer={"torch": "2.13.0"},
)
HEADER_SIZE = len(MAGIC) + 2 + 8 + 32
VERSION_AT = len(MAGIC)


def framed(body: bytes, version: int = FORMAT_VERSION) -> bytes:
    """A manifest file with any body, and a header that fits it."""
    return MAGIC + struct.pack(">HQ", version, len(body)) + sha256(body).digest() + body


def nested(depth: int) -> object:
    """A list that holds a list, and so on."""
    return [] if depth == 1 else [nested(depth - 1)]


def body_with(**changes: object) -> bytes:
    return framed(msgpack.packb({**asdict(SAMPLE), **changes}))


def test_the_bytes_are_as_the_format_is_described() -> None:
    data = encode_manifest(SAMPLE)
    assert data[:VERSION_AT] == b"GEARCACHE\0"
    assert data[VERSION_AT : VERSION_AT + 2] == struct.pack(">H", FORMAT_VERSION)
    assert data == framed(data[HEADER_SIZE:])
    assert list(msgpack.unpackb(data[HEADER_SIZE:])) == list(Manifest.__struct_fields__)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)
MAPS = st.dictionaries(st.text(max_size=3), PLAIN, max_size=4)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)


@settings(max_examples=examples(100))
@given(
    st.builds(
        lambda **fields: Manifest(**fields),
        name=st.just(""),
        key_digest=DIGESTS,
        components=MAPS,
        payload=MAPS,
        blobs=st.dictionaries(DIGESTS, st.integers(0, 1 << 43), max_size=3),
        created=st.floats(0, 1e11),
        producer=MAPS,
    )
)
def test_every_manifest_comes_back_with_its_types(manifest: Manifest) -> None:
    manifest = replace(manifest, name=f"Model.decode-{manifest.key_digest}")
    back = decode_manifest(encode_manifest(manifest), PATH)
    assert encode("m", asdict(back)) == encode("m", asdict(manifest))


def test_a_flip_of_any_byte_is_found() -> None:
    data = encode_manifest(SAMPLE)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        expected = OtherFormat if position in (VERSION_AT, VERSION_AT + 1) else CorruptEntry
        with pytest.raises(CorruptEntry) as caught:
            decode_manifest(bytes(flipped), PATH)
        assert type(caught.value) is expected, position
        assert caught.value.path == PATH


def test_a_file_cut_off_anywhere_is_found() -> None:
    data = encode_manifest(SAMPLE)
    for length in range(len(data)):
        with pytest.raises(CorruptEntry):
            decode_manifest(data[:length], PATH)


def test_bytes_after_the_end_are_found() -> None:
    with pytest.raises(CorruptEntry, match="were written"):
        decode_manifest(encode_manifest(SAMPLE) + b"\0", PATH)
    with pytest.raises(CorruptEntry, match="cannot be decoded"):
        decode_manifest(framed(encode_manifest(SAMPLE)[HEADER_SIZE:] + b"\0"), PATH)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"name": b"x"}, id="name of bytes"),
        pytest.param({"key_digest": DIGEST[:-1]}, id="short digest"),
        pytest.param({"payload": 1}, id="payload"),
        pytest.param({"blobs": {"../x": 1}}, id="blob name"),
        pytest.param({"blobs": {DIGEST: -1}}, id="negative size"),
        pytest.param({"blobs": {DIGEST: True}}, id="size that is a bool"),
        pytest.param({"created": 1}, id="created as int"),
        pytest.param({"created": float("nan")}, id="created nan"),
        pytest.param({"created": -1.0}, id="created before the epoch"),
        pytest.param({"created": 1e300}, id="created beyond all calendars"),
        pytest.param({"name": "Model.decode"}, id="name without the digest"),
        pytest.param({"name": f"../decode-{DIGEST}"}, id="name that is a path"),
        pytest.param({"name": f"\x1b[2J-{DIGEST}"}, id="name that is an escape"),
        pytest.param({"blobs": {DIGEST: 1 << 62}}, id="size beyond all disks"),
        pytest.param({"producer": {"variants": float("inf")}}, id="infinitely many variants"),
        pytest.param({"producer": {"variants": -1}}, id="less than no variant"),
        pytest.param({"producer": {"compile_seconds": float("nan")}}, id="seconds that are no number"),
        pytest.param({"producer": {"compile_seconds": True}}, id="seconds that are a bool"),
        pytest.param({"producer": {"gears": "x=1"}}, id="gears that are a text"),
        pytest.param({"producer": {"gears": [1]}}, id="a gear that is a number"),
        pytest.param({"producer": {"torch": 2.13}}, id="torch that is a number"),
        pytest.param({"producer": {"folders": 1}}, id="folders that are a number"),
        pytest.param({"more": 1}, id="unknown field"),
        pytest.param({"payload": {"a": [{b"x": 1}]}}, id="nested map key of bytes"),
        pytest.param({"payload": {"x": msgpack.ExtType(1, b"")}}, id="empty extension"),
        pytest.param({"payload": {"x": msgpack.ExtType(1, b"abc")}}, id="extension"),
        pytest.param({"payload": {"x": msgpack.Timestamp(1, 2)}}, id="timestamp"),
    ],
)
def test_a_field_of_another_type_is_corrupt(changes: dict[str, object]) -> None:
    with pytest.raises(CorruptEntry):
        decode_manifest(body_with(**changes), PATH)


@pytest.mark.parametrize("body", [b"\x90", b"\xc0", b"\x80", b"\x81\x01\x02", b""], ids=repr)
def test_a_body_that_is_no_manifest_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptEntry):
        decode_manifest(framed(body), PATH)


def test_a_missing_field_is_corrupt() -> None:
    body = asdict(SAMPLE)
    del body["producer"]
    with pytest.raises(CorruptEntry, match="its fields are not"):
        decode_manifest(framed(msgpack.packb(body)), PATH)


def test_a_list_of_too_many_items_is_corrupt() -> None:
    many = b"\xdd" + struct.pack(">I", manifest_module.MAX_ITEMS + 1) + bytes(manifest_module.MAX_ITEMS + 1)
    with pytest.raises(CorruptEntry, match="max_array_len"):
        decode_manifest(framed(many), PATH)


def test_a_manifest_over_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_manifest(SAMPLE)
    monkeypatch.setattr(manifest_module, "MAX_MANIFEST_SIZE", len(data) - 1)
    with pytest.raises(CorruptEntry, match="more than the limit"):
        decode_manifest(data, PATH)
    with pytest.raises(ValueError, match="at most"):
        encode_manifest(SAMPLE)


@pytest.mark.parametrize(
    "fields, error",
    [
        pytest.param({"payload": {"x": {1: 2}}}, TypeError, id="map key"),
        pytest.param({"payload": {"x": 1 << 64}}, ValueError, id="huge int"),
        pytest.param({"payload": {"x": "\ud800"}}, ValueError, id="surrogate"),
        pytest.param({"payload": {"x": nested(MAX_NESTING + 1)}}, ValueError, id="too deep"),
        pytest.param({"blobs": {"x": 1}}, ValueError, id="blob name"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_it_is_written(
    fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        encode_manifest(replace(SAMPLE, **fields))
