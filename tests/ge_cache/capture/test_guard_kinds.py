"""Every guard kind that the installed torch has is decided on."""

from __future__ import annotations

from gearcache.ge_cache.capture import translation as guards
from gearcache.ge_cache.private_torch import dynamo as private_dynamo

#: Kinds that came with torch 2.14 or 2.15.
NEWER = {"COW_TENSOR_MATCH", "CURRENT_STREAM_MATCH", "LIST_REVERSEITERATOR_LEN"}


def test_every_guard_kind_has_a_translation_or_a_reason() -> None:
    assert guards.known_kinds() - NEWER == set(private_dynamo.guard_kinds()) - NEWER
    assert set(guards._REFUSED) >= NEWER
