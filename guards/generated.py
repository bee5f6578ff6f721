"""The one place where Python source that gearcache wrote becomes a function.

Such source is made from verified plain data: names are checked to be identifiers, numbers are numbers, and every other
object enters through the namespace. Nothing that was stored is ever run as text, but for the kernels that torchair
generates (`ge_cache/torchair.py`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


def define(source: str, name: str, namespace: dict[str, Any], label: str) -> Callable[..., Any]:
    """Return the function `name` that `source` defines; `label` stands in tracebacks."""
    exec(_compiled(source, f"<gearcache {label}>"), namespace)  # noqa: S102 - see the module's docstring
    function: Callable[..., Any] = namespace[name]
    return function


@functools.lru_cache(maxsize=256)
def _compiled(source: str, label: str) -> types.CodeType:
    """Compile once what several gears share: it takes a millisecond."""
    code: types.CodeType = compile(source, label, "exec")
    return code
