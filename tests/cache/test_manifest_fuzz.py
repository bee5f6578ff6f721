"""Whatever bytes a manifest file holds: it is read or refused, in bounded time and memory.

`python -m benchmarks.fuzz manifest` does the same with a million inputs.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.manifest import outcome, sealed
from gearcache.cache.manifest import MAGIC
from tests.support.sampled import examples


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
