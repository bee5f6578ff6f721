"""Every guard kind that the installed torch has is decided on."""

from __future__ import annotations

from gearcache.ge_cache.capture import translation as guards
from gearcache.ge_cache.private_torch import dynamo as private_dynamo


def test_every_guard_kind_has_a_translation_or_a_reason() -> None:
    assert guards.known_kinds() == set(private_dynamo.guard_kinds())


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
    from gearcache.guards.evidence.checks import KINDS

    assert set(guards._DIRECT.values()) | set(guards._WITH_ARGUMENT.values()) <= KINDS
