"""What a manifest of a tier must carry: foreign, stripped, replaced, moved and outdated signatures are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gearcache.cache.manifest import decode_manifest, encode_manifest, is_signed, signed_parts
from gearcache.cache.remote.trust import Trust
from gearcache.cache.signatures.key_pair import SigningKey
from gearcache.cache.signatures.trailer import HMAC_SIZE, pair_trailer
from gearcache.errors import CorruptEntry, UnsignedEntry
from tests.support.sampled import examples
from tests.support.signing import CREATED, Pair, manifest, signer

SOURCE = "s3://bucket/team/entries/Model.decode/manifest"


def accepted(trust: Trust, data: bytes) -> str | None:
    """Who signed it, or None where it is refused, by the one or the other."""
    try:
        decode_manifest(data, Path("manifest"))
        return trust.check(data, SOURCE)
    except (CorruptEntry, UnsignedEntry):
        return None


def refusal(trust: Trust, data: bytes, **options: bool) -> str:
    decode_manifest(data, Path("manifest"))
    with pytest.raises(UnsignedEntry) as caught:
        trust.check(data, SOURCE, **options)
    assert f"`{SOURCE}` is not trusted: " in str(caught.value)
    assert caught.value.remedy
    return caught.value.reason


@pytest.fixture
def build(tmp_path: Path) -> Pair:
    return Pair(tmp_path, "build-2026")


@pytest.fixture
def both(build: Pair, tmp_path: Path) -> Trust:
    """A host that has everything."""
    return Trust([build.trusted], signer(tmp_path), build.private)


def test_signatures_of_each_kind_and_of_both_name_who_signed(build: Pair, both: Trust) -> None:
    plain, by_hmac = manifest(), Trust(hmac=both.hmac)
    pair, secret, all_of_them = build.signs.signed(plain), by_hmac.signed(plain), both.signed(plain)
    assert [is_signed(data) for data in (plain, pair, secret, all_of_them)] == [False, True, True, True]
    for data in (plain, pair, secret, all_of_them):
        assert decode_manifest(data, Path("m")) == decode_manifest(plain, Path("m"))
        assert signed_parts(data).manifest == plain
    assert build.checks.check(pair, SOURCE) == "build-2026"
    assert build.checks.check(all_of_them, SOURCE) == "build-2026"
    assert by_hmac.check(secret, SOURCE) == by_hmac.check(all_of_them, SOURCE) == "hmac"
    assert both.check(all_of_them, SOURCE) == "hmac"


def test_a_host_takes_what_it_has_signed_itself_whatever_it_lists(build: Pair, tmp_path: Path) -> None:
    data = build.signs.signed(manifest())
    assert build.signs.check(data, SOURCE) == "this host"
    assert Trust([build.trusted], signing_key=build.private).check(data, SOURCE) == "build-2026"
    outdated = Trust([replace(build.trusted, end=CREATED)], signing_key=build.private)
    assert "is trusted for entries until" in refusal(outdated, data), "its own list counts"
    assert "does not fit" in refusal(build.signs, data[:-1] + bytes([data[-1] ^ 1]))
    stranger = Pair(tmp_path, "stranger").signs.signed(manifest())
    assert "is not set" in refusal(build.signs, stranger)
    build.path.unlink()
    assert "is not set" in refusal(Trust(signing_key=SigningKey(build.path)), data)


def test_what_is_not_signed_is_refused_unless_that_is_allowed(both: Trust) -> None:
    assert refusal(both, manifest()) == "it is not signed"
    assert refusal(Trust(), manifest()) == "it is not signed"
    assert Trust(both.keys).check(manifest(), SOURCE, unsigned=True) == ""
    with pytest.raises(UnsignedEntry, match="takes nothing that nobody signed"):
        both.check(manifest(), SOURCE, unsigned=True)


def test_a_foreign_key_is_refused_with_its_fingerprint(build: Pair, tmp_path: Path) -> None:
    other = Pair(tmp_path, "other")
    foreign = other.signs.signed(manifest())
    shown = other.trusted.fingerprint
    assert len(shown) == 16
    assert (
        refusal(build.checks, foreign)
        == f"it is signed by the key {shown}, and `GEARCACHE_TRUSTED_KEYS` does not list it"
    )
    assert "is not set" in refusal(Trust(), foreign)
    assert "does not list it" in refusal(Trust([build.trusted], signer(tmp_path)), foreign)
    assert build.checks.check(foreign, SOURCE, unsigned=True) == "", "it could have been stripped as well"


def test_a_signature_of_another_entry_is_refused(build: Pair, both: Trust) -> None:
    for trust, reason in (
        (build.signs, "the signature by `build-2026`"),
        (Trust(hmac=both.hmac), "not signed with the key"),
    ):
        one, other = manifest(1), manifest(2)
        replaced = other + trust.signed(one)[len(one) :]
        assert reason in refusal(both, replaced)
        with pytest.raises(UnsignedEntry):
            both.check(replaced, SOURCE, unsigned=trust is build.signs)


def test_a_body_that_was_changed_with_its_digest_is_refused(build: Pair) -> None:
    signed = build.signs.signed(manifest())
    parts = signed_parts(signed)
    hostile = encode_manifest(replace(decode_manifest(signed, Path("m")), payload={"number": 666}))
    data = hostile + parts.pair
    assert refusal(build.checks, data) == (
        f"the signature by `build-2026` ({build.trusted.fingerprint}) does not fit its bytes"
    )
    assert "does not fit" in refusal(build.checks, data, unsigned=True)


def test_a_trusted_key_that_is_only_named_is_refused(build: Pair, tmp_path: Path) -> None:
    data = manifest()
    foreign = signed_parts(Pair(tmp_path, "thief").signs.signed(data))
    assert "does not fit" in refusal(build.checks, data + pair_trailer(build.trusted.public_key, foreign.signature))
    assert "does not fit" in refusal(build.checks, data + pair_trailer(build.trusted.public_key, bytes(64)))


def test_a_signature_of_the_same_bytes_for_another_use_is_refused(build: Pair) -> None:
    """What else a key may sign, a commit or a package, is no signature of a manifest."""
    data = manifest()
    bare = build.private._private().sign(data)
    assert "does not fit" in refusal(build.checks, data + pair_trailer(build.trusted.public_key, bare))


@pytest.mark.parametrize("kind", ["pair", "both"])
def test_every_flipped_bit_is_refused(kind: str, build: Pair, both: Trust) -> None:
    signs = build.signs if kind == "pair" else both
    data = bytearray(signs.signed(manifest()))
    assert accepted(both, bytes(data))
    ours = len(data) - (HMAC_SIZE if kind == "both" else 0)
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        # An HMAC may be of another host's key: the other signature covers all that is used.
        expected = None if bit // 8 < ours else "build-2026"
        assert accepted(both, bytes(data)) == expected, bit
        if expected:
            assert accepted(Trust(hmac=both.hmac), bytes(data)) is None
            assert both.check(both.signed(bytes(data)), SOURCE) == "hmac", "it is renewed"
        data[bit // 8] ^= 1 << bit % 8


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_done_to_a_signed_manifest_only_what_was_signed_is_taken(
    build: Pair, both: Trust, data: st.DataObject
) -> None:
    parts = []
    for each in (signed_parts(both.signed(manifest(number))) for number in (1, 2)):
        parts += [each.manifest, each.public_key, each.signature, each.hmac, each.pair]
    pieces = data.draw(st.lists(st.sampled_from(parts) | st.binary(max_size=40), max_size=6))
    made = b"".join(pieces)
    start = data.draw(st.integers(0, len(made)))
    made = (
        made[:start]
        + data.draw(st.binary(max_size=3))
        + made[data.draw(st.integers(start, min(len(made), start + 3))) :]
    )
    if accepted(both, made):
        assert signed_parts(made).manifest in (manifest(1), manifest(2))


@pytest.mark.parametrize(
    ("start", "end", "is_taken"),
    [
        pytest.param(CREATED, None, True, id="from that very moment"),
        pytest.param(CREATED + 1, None, False, id="from later"),
        pytest.param(None, CREATED, False, id="until that very moment"),
        pytest.param(None, CREATED + 1, True, id="until later"),
        pytest.param(CREATED - 1, CREATED + 1, True, id="between"),
    ],
)
def test_entries_of_another_time_than_the_key_is_trusted_for_are_refused(
    build: Pair, start: float | None, end: float | None, is_taken: bool
) -> None:
    data = build.signs.signed(manifest())
    trust = Trust([replace(build.trusted, start=start, end=end)])
    if is_taken:
        assert trust.check(data, SOURCE) == "build-2026"
        return
    assert "is trusted for entries " in refusal(trust, data)
    assert "not of 2027-01-15T08:00:00" in refusal(trust, data, unsigned=True)


@pytest.mark.parametrize("why", ["unknown", "wrong", "outdated"])
def test_no_host_signs_in_the_place_of_a_key_that_it_does_not_trust(why: str, build: Pair, tmp_path: Path) -> None:
    other = Pair(tmp_path, "stolen")
    data = other.signs.signed(manifest())
    host, told = Trust([build.trusted], signing_key=build.private), "does not list it"
    if why == "wrong":
        parts = signed_parts(data)
        data = parts.manifest + pair_trailer(parts.public_key, bytes(64))
        host, told = Trust([other.trusted], signing_key=build.private), "does not fit its bytes"
    elif why == "outdated":
        host, told = Trust([replace(other.trusted, end=CREATED)], signing_key=build.private), "is trusted for entries"
    with pytest.raises(UnsignedEntry) as caught:
        host.signed(data)
    assert told in caught.value.reason
    assert "compiled again here (`gearcache clear --entry " in caught.value.remedy
    assert "`GEARCACHE_TRUSTED_KEYS`" in caught.value.remedy
