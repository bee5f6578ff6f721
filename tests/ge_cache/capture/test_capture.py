"""One capture: what is assumed constant, streams, and ints that torch was told to keep dynamic."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.capture import capture_method
from gearcache.ge_cache.capture.captured import Capture

OFFSET = 2.0


@torch.compiler.assume_constant_result
def assumed() -> float:
    return OFFSET


@torch.compiler.assume_constant_result
def assumed_of(value: float) -> float:
    return value


class Net(nn.Module):
    def assuming(self, x: Tensor) -> Tensor:
        return x * assumed()

    def assuming_of(self, x: Tensor) -> Tensor:
        return x * assumed_of(2.0)

    def on_a_stream(self, x: Tensor) -> Tensor:
        with torch.Stream(device="cpu"):
            return x + 1


def _capture(name: str, *arguments: Any) -> Capture:
    return capture_method(getattr(Net(), name), arguments, {}, method=f"Net.{name}", dynamic=True)


def _expected(capture: Capture, kind: str) -> dict[str, Any]:
    return {check.access.text: check.expected for check in capture.checks if check.kind == kind}


def test_a_result_assumed_constant_is_checked_again_or_refused() -> None:
    capture = _capture("assuming", torch.ones(2, 4))
    (text,) = [text for text in _expected(capture, "constant") if text.endswith("assumed()")]
    assert _expected(capture, "constant")[text] == ["float", (2.0).hex()]
    with pytest.raises(CaptureError, match=r"`Net\.assuming_of`.*assumed_of`, whose result is assumed constant"):
        _capture("assuming_of", torch.ones(2, 4))


def test_what_works_with_streams_is_refused_with_the_name_of_the_method() -> None:
    with pytest.raises(CaptureError, match=r"^`Net.on_a_stream` cannot be cached: it works with streams or events"):
        _capture("on_a_stream", torch.ones(3))
