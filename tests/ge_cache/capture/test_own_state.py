"""A method that writes to what it reads: every call sees what the one before left behind, cold and relaunched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from tests.scenarios.own_state import Net
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("assigned_data", r"assigns to the `\.data` of `self\.weight`, which has other memory then; assign a tensor"),
        ("new_parameter", r"torch\.nn\.Parameter\(\)` constructor"),
    ],
)
def test_what_no_frame_can_replay_is_refused_with_a_way_out(method: str, words: str, cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(getattr(net, method), config=strict_config())
    with pytest.raises(gearcache.CaptureError, match=words):
        cached(torch.ones(2, 4))
