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


def test_a_value_that_differs_at_each_call_is_one_miss_until_a_graph_is_added() -> None:
    counters = Counters()
    history = History("M.f", "M.f-ab", "", counters, strict=False)

    def miss(value: int) -> None:
        text = f"`n`: constant was 0, is now {value}"
        history.miss(Reason("arguments", text, "n", "0", str(value)), kind="arguments")

    for value in range(1, 50):
        miss(value)
    assert (counters.misses, len([line for line in history.lines if line.startswith("miss")])) == (1, 1)
    history.note("load")
    miss(7)
    assert counters.misses == 2
