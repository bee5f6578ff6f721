"""Describes what a build would compile, as a text that is equal on every host that would compile the same."""

from __future__ import annotations

from typing import Any

from gearcache.guards.gears.spec import GearSpec
from gearcache.serving.call.call import Call

_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def work_text(call: Call, spec: GearSpec, dynamic: bool | None) -> str:
    """Return gears, tensors without the sizes that do not matter, and plain values of a call.

    Hosts compare it to share one compile. It need not identify graphs exactly: at worst, a host waits for a graph that
    does not serve it, or compiles the same as another one.
    """
    tensors = [
        (path, str(tensor.dtype), tensor.device.type, [_size(spec, path, dim, size, dynamic) for dim, size in sizes])
        for path, tensor in sorted(call.tensors.items())
        for sizes in [list(enumerate(tensor.shape))]
    ]
    return repr((sorted(spec.gears), tensors, {name: _plain(value) for name, value in call.given.items()}))


def _size(spec: GearSpec, path: str, dim: int, size: int, dynamic: bool | None) -> int | str:
    is_geared = any(axis.dim == dim and axis.matches(path) for axis in (*spec.axes, *spec.ranges))
    return "any" if is_geared or (dynamic and not spec.axes and size > 1) else size


def _plain(value: Any) -> str:
    return repr(value) if type(value) in _SCALARS else type(value).__qualname__
