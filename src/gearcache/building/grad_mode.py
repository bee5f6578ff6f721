"""Captures a method that asks for the grad mode: for one mode, or for both, which may have one capture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.dependencies.tensor_reads import GRAD_MODE
from gearcache.ge_cache.graphs.static import lift_attributes
from gearcache.guards.dispatch.frame import UnstorableConstant, encode_code
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.constants import to_plain


def settled(capture: Capture, with_grad: bool, capture_as: Callable[[bool], Capture] | None) -> Capture:
    """Return a capture that records the grad mode in which it holds, unless it holds in both.

    `capture_as` makes the capture of a mode; None if the modes are known to differ, or only one of them is asked for.
    """
    if not capture.asks_grad_mode:
        return capture
    opposite = None
    if capture_as is not None:
        with contextlib.suppress(CaptureError):
            opposite = capture_as(not with_grad)
    if opposite is not None and _program(capture) == _program(opposite):
        capture.checks = _joined(capture.checks, opposite.checks)
        capture.tensor_checks = _joined(capture.tensor_checks, opposite.tensor_checks)
        capture.traced_code = list({id(code): code for code in (*capture.traced_code, *opposite.traced_code)}.values())
        capture.asks_grad_mode = False
    else:
        capture.checks.append(Check("constant", GRAD_MODE, to_plain(with_grad)))
    return capture


def _joined(left: list[Check], right: list[Check]) -> list[Check]:
    return list({repr(check.to_plain()): check for check in [*left, *right]}.values())


def _program(capture: Capture) -> list[Any]:
    """Return the program of a capture, without the name that is unique to the capture."""
    try:
        frame = repr(encode_code(capture.frame_code)).replace(capture.graph_name, "")
    except UnstorableConstant:
        frame = str(id(capture))
    return [
        frame,
        lift_attributes(capture).code,
        [[item.access, str(item.sizes), str(item.strides), item.dtype] for item in capture.inputs],
        capture.attributes,
        capture.misbound,
        capture.written_ints,
        [[str(symbol), access] for symbol, access in capture.number_accesses.items()],
        list(map(str, capture.numbers.inputs)),
        [each.text for each in capture.numbers.computed],
        sorted(map(str, capture.shape_env.guards)),
        sorted(capture.unbacked.items(), key=str),
    ]
