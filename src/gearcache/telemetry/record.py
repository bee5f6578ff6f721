"""Groups the objects that record the calls of one binding."""

from __future__ import annotations

from msgspec import Struct

from gearcache.telemetry.counters import Counters
from gearcache.telemetry.gear_use import GearUse
from gearcache.telemetry.history import History
from gearcache.telemetry.outcomes import Outcomes
from gearcache.telemetry.shapes_met import ShapesMet


class Record(Struct, frozen=True):
    """The records of the calls of one binding; all but history and shapes belong to the whole cached method."""

    history: History
    counters: Counters
    outcomes: Outcomes
    use: GearUse
    shapes: ShapesMet
