"""Private names of torch by which Dynamo imitates NumPy; each has a test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.guards.evidence.code import is_library_file


@contextlib.contextmanager
def watched_numpy(refuse: Callable[[str], None]) -> Iterator[None]:
    """Refuse the trace where Dynamo replaces an array or a scalar of NumPy by a tensor."""
    from torch._dynamo.variables.tensor import NumpyNdarrayVariable

    variable: Any = NumpyNdarrayVariable
    init = variable.__init__

    def watched(self: Any, *arguments: Any, **keywords: Any) -> None:
        refuse(
            "it computes with NumPy, or asks about an array or a scalar of it, which torch imitates with other dtypes "
            "and classes: make it float(...), int(...) or torch.from_numpy(...) where it is assigned or given, and use "
            f"`math` or torch in place of functions of NumPy{_place()}"
        )
        init(self, *arguments, **keywords)

    with exchanged([(variable, "__init__", here(watched, init))]):
        yield


def _place() -> str:
    """Return the line of the traced method."""
    from torch._guards import TracingContext

    frames = [frame for frame in TracingContext.extract_stack() if not is_library_file(frame.filename)]
    return f'; File "{frames[-1].filename}", line {frames[-1].lineno}, in {frames[-1].name}' if frames else ""


@contextlib.contextmanager
def kept_flags() -> Iterator[None]:
    """Leave read-only arrays unchanged: Dynamo makes the arrays that it sees writeable."""
    from torch._dynamo.variables.builder import VariableBuilder

    builder: Any = VariableBuilder
    # Dynamo makes it once in a process from the functions at that time: `torch.compile` may have done so.
    table = builder._type_dispatch()

    def keeping(wrap: Any) -> Any:
        def wrap_numpy_ndarray(self: Any, value: Any) -> Any:
            is_writeable = value.flags.writeable
            try:
                return wrap(self, value)
            finally:
                if not is_writeable:
                    value.flags.writeable = False

        return here(wrap_numpy_ndarray, wrap)

    arrays = [kind for kind in table if getattr(kind, "__module__", "") == "numpy" and kind.__name__ == "ndarray"]
    with exchanged([(table, kind, keeping(table[kind])) for kind in arrays]):
        yield
