"""Objects that a method makes, beside their rows in `tests.cases`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.errors import CaptureError
from tests.support.compared import assert_same
from tests.support.scenarios import strict_config


class Net(torch.nn.Module):
    def lucky(self, x: torch.Tensor) -> torch.Tensor:
        return x + random.randint(0, 10)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_a_refused_call_leaves_random_numbers_as_they_are(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.lucky, config=strict_config())
    random.seed(0)
    before = random.getstate()
    with pytest.raises(CaptureError):
        cached(torch.ones(3))
    assert random.getstate() == before


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["to_sparse_csr", "to_mkldnn", "nested"])
def test_a_buffer_of_another_layout_that_is_not_used_does_no_harm(kind: str, cache_dir: Path) -> None:
    net, twin = Net(), Net()
    eye = torch.eye(4)
    net.table = torch.nested.nested_tensor([eye, eye[:2]]) if kind == "nested" else getattr(eye, kind)()
    net.register_buffer("adjacency", net.table)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    for _ in range(2):
        assert_same(cached(torch.ones(3)), twin.run(torch.ones(3)))
    assert cached.stats.traces == 1
