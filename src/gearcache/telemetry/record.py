"""All that is noted of the calls of one binding."""

from __future__ import annotations

from msgspec import Struct

from gearcache.telemetry.gear_use import GearUse
from gearcache.telemetry.history import History
from gearcache.telemetry.outcomes import Outcomes
from gearcache.telemetry.shapes_met import ShapesMet
from gearcache.telemetry.stats import Counters


class Record(Struct, frozen=True):
    """What is noted of the calls of one binding; all but history and shapes is that of the whole cached method."""

    history: History
    counters: Counters
    outcomes: Outcomes
    use: GearUse
    shapes: ShapesMet
