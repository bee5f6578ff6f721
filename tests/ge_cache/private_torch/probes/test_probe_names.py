"""Functions that probes replace are there, and are left as they were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gearcache.ge_cache.capture.exchanged import entries_of
from gearcache.ge_cache.private_torch.every_probe import OF_TURNS, PROBES
from gearcache.ge_cache.private_torch.probe import listening

_ABSENT = object()


def test_every_probe_is_put_in_place_and_undone() -> None:
    every = (*OF_TURNS, *PROBES)
    places = [(owner, name) for probes in every for owner, name, _ in probes.replacements()]

    def entries() -> list[Any]:
        return [entries_of(owner).get(name, _ABSENT) for owner, name in places]

    before = entries()
    assert len(places) > 200
    for _ in range(2):  # what replaces a function is made once
        with listening(SimpleNamespace(), every):
            assert not [place for place, old, new in zip(places, before, entries(), strict=True) if old is new]
        assert all(old is new for old, new in zip(before, entries(), strict=True))
