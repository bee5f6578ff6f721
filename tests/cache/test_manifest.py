"""Manifests: read back as written, any damage is told apart, and any bytes are refused in bounded time and memory."""

from __future__ import annotations

import struct
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import asdict, replace

from benchmarks.fuzz.manifest import outcome, sealed
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
VERSION_AT = len(MAGIC)


def framed(body: bytes, version: int = FORMAT_VERSION) -> bytes:
    """A manifest file with any body, and a header that fits it."""
    return MAGIC + struct.pack(">HQ", version, len(body)) + sha256(body).digest() + body


def nested(depth: int) -> object:
    """A list that holds a list, and so on."""
    return [] if depth == 1 else [nested(depth - 1)]


def body_with(**changes: object) -> bytes:
    return framed(msgpack.encode({**asdict(SAMPLE), **changes}))


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


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"key_digest": DIGEST[:-1]}, id="short digest"),
        pytest.param({"blobs": {"../x": 1}}, id="blob name"),
        pytest.param({"blobs": {DIGEST: True}}, id="size that is a bool"),
        pytest.param({"created": float("nan")}, id="created nan"),
        pytest.param({"name": f"../decode-{DIGEST}"}, id="name that is a path"),
        pytest.param({"name": f"\x1b[2J-{DIGEST}"}, id="name that is an escape"),
        pytest.param({"producer": {"variants": float("inf")}}, id="infinitely many variants"),
        pytest.param({"producer": {"gears": "x=1"}}, id="gears that are a text"),
        pytest.param({"more": 1}, id="unknown field"),
    ],
)
def test_a_field_of_another_type_is_corrupt(changes: dict[str, object]) -> None:
    with pytest.raises(CorruptEntry):
        decode_manifest(body_with(**changes), PATH)


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
        pytest.param({"payload": {"x": 1 << 64}}, ValueError, id="huge int"),
        pytest.param({"payload": {"x": nested(MAX_NESTING + 1)}}, ValueError, id="too deep"),
        pytest.param({"blobs": {"x": 1}}, ValueError, id="blob name"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_it_is_written(
    fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        encode_manifest(replace(SAMPLE, **fields))


@settings(max_examples=examples(100))
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_also_behind_a_sound_header(data: bytes) -> None:
    assert outcome(data) == outcome(MAGIC + data) == outcome(sealed(data)) == "refused"


def test_hostile_lengths_and_nesting_take_no_memory() -> None:
    bodies = {
        "array of 4 billion": b"\xdd\xff\xff\xff\xff",
        "map of 4 billion": b"\xdf\xff\xff\xff\xff",
        "text of 4 GB": b"\xdb\xff\xff\xff\xff",
        "bytes of 4 GB": b"\xc6\xff\xff\xff\xff",
        "extension of 4 GB": b"\xc9\xff\xff\xff\xff\x01",
        "nested arrays": b"\x91" * 1_000_000,
        "nested maps": b"\x81\xa1a" * 500_000,
        "timestamp": b"\xd6\xff\x00\x00\x00\x00",
    }
    for body in bodies.values():
        assert outcome(sealed(body)) == "refused"
