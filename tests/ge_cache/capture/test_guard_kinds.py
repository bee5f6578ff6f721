"""Every guard kind that the installed torch has is decided on."""

from __future__ import annotations

from torch._dynamo.guards import GuardBuilder

from gearcache.ge_cache.capture import translation as guards

#: Kinds that came with torch 2.14 or 2.15.
NEWER = {"COW_TENSOR_MATCH", "CURRENT_STREAM_MATCH", "LIST_REVERSEITERATOR_LEN"}


def test_every_guard_kind_has_a_translation_or_a_reason() -> None:
    kinds = {name for name in vars(GuardBuilder) if name.isupper()}
    assert guards.known_kinds() - NEWER == kinds - NEWER
    assert set(guards._REFUSED) >= NEWER
