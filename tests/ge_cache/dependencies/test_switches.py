"""A region of attention kernels at many sizes; other switches that a method sets have rows in `tests.cases`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import gearcache
from tests.support.scenarios import strict_config


class Regions(torch.nn.Module):
    def of_attention(self, x: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def test_a_region_of_attention_kernels_gives_the_bits_of_eager_mode_at_all_sizes(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Regions().of_attention, config=strict_config())
    attended = torch.nn.functional.scaled_dot_product_attention
    differs = False
    with torch.no_grad():
        for rows in (4, 7, 33):
            x = torch.randn(1, 2, rows, 8, generator=torch.Generator().manual_seed(rows))
            expected = Regions().of_attention(x)
            assert torch.equal(cached(x), expected)
            differs |= not torch.equal(attended(x, x, x), expected)
    assert differs  # or this shows nothing
