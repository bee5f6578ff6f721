"""Record what a trace reads of tensors beyond their values, as checks of every call.

Sizes, strides and dtype of the graph's inputs are compared on every call, so a tensor whose sizes the trace reads stays
an input of the graph, used there or not. Other facts read of a tensor (`requires_grad`, its class) are noted here and
become checks, as do the facts of a tensor that the trace saw and that is not an input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import is_given
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.names import a_type
from gearcache.guards.evidence.tensor_facts import PLAIN_TYPES, reads, tensor_plain

_BUFFER_MARK = "_is_buffer"


def tensor_checks(log: TraceLog, paths: Paths, matched: Iterable[Any], held_sources: Iterable[Any]) -> list[Check]:
    """Return the checks of the tensors that the trace saw: `matched` are the sources of all that Dynamo guards.

    Every tensor in `matched` counts: one that is not in `held_sources`, as the graph has it neither as an input nor
    bound to it, gets a check here. A buffer whose sizes alone were read is not in them.
    """
    covered, sized = set(held_sources), {source for (source,) in log.given("sizes")}
    checks = []
    for source in matched:
        if source not in covered:
            path = paths.of(source)
            tensor = paths.value(path)
            if type(tensor) not in PLAIN_TYPES:
                cause = f"it passes on `{path.text}`, {a_type(tensor)}, which its graph does not compute with"
                raise CaptureError(log.method, cause)
            checks.append(Check("tensor", path, tensor_plain(tensor, sizes=source in sized)))
    for (source,) in log.given("class of a tensor"):
        path = paths.of(source)
        tensor = paths.value(path)
        checks.append(observe("type", path, tensor))
        checks.append(observe("has_attr" if hasattr(tensor, _BUFFER_MARK) else "no_attr", path, tensor, _BUFFER_MARK))
    values = {(source, name): value for source, name, value in log.of("attribute of a tensor") if is_given(source)}
    for (source, name), value in values.items():
        path = paths.of(source)
        try:
            expected = [name, to_plain(value)]
        except NotConstant as error:
            raise CaptureError(log.method, f"it reads `{name}` of `{path.text}`, a {error}") from None
        if not reads(paths.value(path), expected):
            raise CaptureError(log.method, f"it reads `{name}` of `{path.text}`, which a trace cannot tell")
        checks.append(Check("reads", path, expected))
    return checks
