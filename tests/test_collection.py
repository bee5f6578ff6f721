"""Python's garbage collector is as before after a load or a compile, even if a signal handler raises within them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from gearcache import collection
from gearcache.collection import paused_collection, rare_collection


class Expired(Exception):
    """What a signal handler raises."""


@pytest.mark.parametrize("paused", [paused_collection, rare_collection])
@pytest.mark.parametrize("name", ["_count", "_count_compile"])
def test_a_handler_that_raises_when_the_collector_was_paused_leaves_it_as_it_was(
    paused: Callable[[], AbstractContextManager[None]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, count = (gc.isenabled(), gc.get_threshold()), getattr(collection, name)
    rang: list[int] = []

    def interrupted(change: int) -> None:
        count(change)
        if not rang:
            rang.append(change)
            raise Expired

    with monkeypatch.context() as patch:
        patch.setattr(collection, name, interrupted)
        try:
            with paused():
                pass
        except Expired:
            pass
    assert (gc.isenabled(), gc.get_threshold()) == before
