"""The lookups of one binding: what counts as a miss."""

from __future__ import annotations

from gearcache.guards.evidence.reason import Reason
from gearcache.telemetry.counters import Counters
from gearcache.telemetry.history import History


def test_calls_that_are_missed_time_and_again_for_the_same_reasons_are_one_miss() -> None:
    counters = Counters()
    history = History("M.f", "M.f-ab", "", counters, strict=False)
    edited, other = Reason("source", "`f` was edited", "f"), Reason("source", "`g` was edited", "g")
    for _ in range(5):
        history.miss(edited, kind="source")
    assert (counters.misses, counters.reasons, history.uncounted) == (1, [edited], ["source"])
    history.miss(other, kind="source")
    history.miss(edited, other, kind="source")
    assert (counters.misses, history.uncounted) == (3, ["source"] * 3)
