"""What `attach` returns, as type checkers see it."""

from __future__ import annotations

import torch
from typing_extensions import assert_type

import gearcache
from gearcache.attaching.attachment import Attachment


def use(model: torch.nn.Module, x: torch.Tensor) -> None:
    served = gearcache.attach(model, gears={"x": {0: [1, 2]}}, config=gearcache.CompilerConfig())
    assert_type(served, Attachment)
    served.warm(x)
    assert_type(served.stats, gearcache.Stats)
    assert_type(served.explain(), str)
