"""Whatever bytes a manifest file holds: it is read or refused, in bounded time and memory.

`python -m benchmarks.fuzz manifest` does the same with a million inputs.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.manifest import mutated, outcome, sealed
from gearcache.cache.manifest import MAGIC
from tests.support.sampled import examples

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(100))
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_also_behind_a_sound_header(data: bytes) -> None:
    assert outcome(data) == outcome(MAGIC + data) == outcome(sealed(data)) == "refused"


@settings(max_examples=examples(100))
@given(st.dictionaries(st.text(max_size=3), PLAIN), st.integers(0, 1 << 30))
def test_a_changed_manifest_with_a_sound_digest_is_read_or_refused(payload: dict[str, object], seed: int) -> None:
    assert outcome(mutated(payload, seed)) in ("read", "refused")


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
