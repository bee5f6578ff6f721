"""Storage offsets and strides of results, beside the scenarios of results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config


class Offset(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x - float(y.storage_offset()), x + y.itemsize, x.norm()

    def doubled(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = x * 2
        return found, found[1:]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_method_that_computes_with_a_storage_offset_is_refused(dynamic: bool, cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Offset().forward, config=strict_config(), dynamic=dynamic)
    with pytest.raises(CaptureError, match=r"offset|returned non-Tensor"):
        cached(torch.ones(3, 4), torch.ones(4, 4)[1:])


def test_a_part_of_an_empty_result_has_its_strides(cache_dir: Path) -> None:
    for number, x in enumerate((torch.empty(4, 0).t(), torch.empty(0, 4), torch.ones(3, 4))):
        net, root = Offset(), cache_dir / str(number)
        cached = gearcache.cache_compile(net.doubled, dynamic=False, config=strict_config(), cache_dir=root)
        for found, expected in zip(cached(x), net.doubled(x), strict=True):
            assert (found.shape, found.stride()) == (expected.shape, expected.stride())
