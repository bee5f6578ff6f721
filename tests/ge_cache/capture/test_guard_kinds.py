"""Every guard kind that the installed torch has is decided on."""

from __future__ import annotations

from gearcache.ge_cache.capture import translation as guards
from gearcache.ge_cache.private_torch import dynamo as private_dynamo

#: Kinds that came with torch 2.14 or 2.15.
NEWER = {"COW_TENSOR_MATCH", "CURRENT_STREAM_MATCH", "LIST_REVERSEITERATOR_LEN"}


def test_every_guard_kind_has_a_translation_or_a_reason() -> None:
    assert guards.known_kinds() - NEWER == set(private_dynamo.guard_kinds()) - NEWER
    assert set(guards._REFUSED) >= NEWER


def test_no_guard_kind_is_decided_twice() -> None:
    groups = [
        set(guards._COVERED),
        set(guards._DIRECT),
        set(guards._WITH_ARGUMENT),
        set(guards._REFUSED),
        guards._SPECIAL,
    ]
    assert sum(map(len, groups)) == len(guards.known_kinds())


def test_every_direct_translation_is_a_check_kind() -> None:
    from gearcache.guards.evidence.kinds import KINDS

    assert set(guards._DIRECT.values()) | set(guards._WITH_ARGUMENT.values()) <= KINDS.keys()
