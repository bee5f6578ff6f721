"""What one binding has met, for a tier (`GEARCACHE_SHAPES`): it outlives the binding, and keeps no model alive."""

from __future__ import annotations

import types

from gearcache.telemetry.shapes_met import Shape, ShapesMet
from gearcache.telemetry.shared_shapes import Told


class ToldShapes:
    """The counts of a binding under the names of its method; `full_name` tells two methods of one name apart."""

    def __init__(self, name: str, full_name: str, shapes: ShapesMet) -> None:
        self._name, self._full_name, self._shapes = name, full_name, shapes

    def shapes_told(self) -> tuple[Told, dict[Shape, int]]:
        """Return what was met of which method, and calls by shape."""
        gears = sorted(self._shapes.gears(), key=lambda gear: [-1 if size is None else size for size in gear])
        return Told(self._name, self._full_name, tuple(self._shapes.dims()), tuple(gears)), self._shapes.counts()


def full_name(function: types.MethodType) -> str:
    """Return module, class and name of a bound method."""
    owner = type(function.__self__)
    return f"{owner.__module__}.{owner.__qualname__}.{function.__name__}"
