"""Constructs that Dynamo gets wrong by itself, beside their rows in `tests.cases`."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
import torch

import gearcache
from tests.cases import of_constructs
from tests.cases.case import text
from tests.support.scenarios import strict_config


def test_a_bound_that_a_deque_gets_is_seen(cache_dir: Path) -> None:
    net = text(of_constructs.Net, "self.unbounded.append(x)\nreturn sum(self.unbounded)")()
    cached = gearcache.cache_compile(net.run, config=strict_config())
    net.unbounded = deque([1, 2])
    assert torch.equal(cached(torch.ones(3, 4)), torch.full((3, 4), 4.0))
    net.unbounded = deque([1, 2], maxlen=2)
    with pytest.raises(gearcache.errors.CaptureError, match="a deque with a `maxlen`"):
        cached(torch.ones(3, 4))
