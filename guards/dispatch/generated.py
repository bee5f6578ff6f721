"""Turn generated Python source into functions; the only place that does.

The source is made from verified plain data: names are checked to be identifiers, numbers are numbers, and every other
object enters through the namespace. Stored text never runs: torchair's artifacts, which are text, are compiled where
they are made.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


def compiled_text(text: str, label: str) -> types.CodeType:
    """Compile the text of an artifact, which takes 10 ms for 400 kB; `label` appears in tracebacks."""
    code: types.CodeType = compile(text, f"<gearcache {label}>", "exec")
    return code


def execute(code: types.CodeType, namespace: dict[str, Any]) -> None:
    """Run the code of an artifact, out of a blob whose owner, mode and digest were verified."""
    exec(code, namespace)  # noqa: S102 - see the module's docstring


def define(source: str, name: str, namespace: dict[str, Any], label: str) -> Callable[..., Any]:
    """Return the function `name` that `source` defines; `label` appears in tracebacks."""
    exec(_compiled(source, f"<gearcache {label}>"), namespace)  # noqa: S102 - see the module's docstring
    function: Callable[..., Any] = namespace[name]
    return function


@functools.lru_cache(maxsize=256)
def _compiled(source: str, label: str) -> types.CodeType:
    """Compile once the source that several gears share: it takes a millisecond."""
    code: types.CodeType = compile(source, label, "exec")
    return code
