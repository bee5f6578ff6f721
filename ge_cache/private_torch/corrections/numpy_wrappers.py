"""Refuse what Dynamo makes tensors of: arrays and scalars of NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.tensor import NumpyNdarrayVariable
from torch._guards import TracingContext

from gearcache.ge_cache.private_torch.probe import Place, Probes
from gearcache.guards.evidence.code import is_library_file

probes = Probes()


def _arrays() -> Iterator[Place]:
    # Dynamo makes it once in a process from the functions at that time: `torch.compile` may have done so.
    builder: Any = VariableBuilder
    table = builder._type_dispatch()
    for kind in [*table]:
        if getattr(kind, "__module__", "") == "numpy" and kind.__name__ == "ndarray":
            yield table, kind


@probes.at_each(_arrays)
def wrapped(trace: Any, original: Any, self: Any, value: Any) -> Any:
    """Leave a read-only array unchanged: Dynamo makes the arrays that it sees writeable."""
    is_writeable = value.flags.writeable
    try:
        return original(self, value)
    finally:
        if not is_writeable:
            value.flags.writeable = False


@probes.at(NumpyNdarrayVariable, "__init__")
def imitated(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse an array or a scalar that becomes a tensor."""
    trace.refuse(
        "it computes with NumPy, or asks about an array or a scalar of it, which torch imitates with other dtypes "
        "and classes: make it float(...), int(...) or torch.from_numpy(...) where it is assigned or given, and use "
        f"`math` or torch in place of functions of NumPy{_place()}"
    )
    original(self, *arguments, **keywords)


def _place() -> str:
    """Return the line of the traced method."""
    frames = [frame for frame in TracingContext.extract_stack() if not is_library_file(frame.filename)]
    return f'; File "{frames[-1].filename}", line {frames[-1].lineno}, in {frames[-1].name}' if frames else ""
