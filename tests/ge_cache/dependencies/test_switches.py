"""Switches of torch that a method sets: refused by name, or honoured; a trace leaves those of regions as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import gearcache


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Regions(torch.nn.Module):
    def of_a_default_dtype(self, x: torch.Tensor) -> torch.Tensor:
        with default_dtype(x.dtype):
            return x * torch.linspace(0, 1, 4)

    def of_attention(self, x: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def _cached(name: str, cache_dir: Path) -> gearcache.CachedMethod:
    config = gearcache.CompilerConfig(backend="eager")
    return gearcache.cache_compile(getattr(Regions(), name), cache_dir=cache_dir, config=config)


def test_a_default_dtype_of_a_region_is_refused_before_it_is_set(cache_dir: Path) -> None:
    with pytest.raises(gearcache.CaptureError, match=r"`torch\.set_default_dtype`.*pass `dtype=`"):
        _cached("of_a_default_dtype", cache_dir)(torch.ones(4, dtype=torch.bfloat16))
    assert torch.get_default_dtype() == torch.float32


def test_a_region_of_attention_kernels_gives_the_bits_of_eager_mode_at_all_sizes(cache_dir: Path) -> None:
    cached = _cached("of_attention", cache_dir)
    attended = torch.nn.functional.scaled_dot_product_attention
    differs = False
    with torch.no_grad():
        for rows in (4, 7, 33):
            x = torch.randn(1, 2, rows, 8, generator=torch.Generator().manual_seed(rows))
            expected = Regions().of_attention(x)
            assert torch.equal(cached(x), expected)
            differs |= not torch.equal(attended(x, x, x), expected)
    assert differs  # or this shows nothing
