"""Compiled code reads the ints of a call from memory, and right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.ge_cache.inductor.number_reads import with_numbers_read
from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource
from tests.support.scenarios import strict_config

EXTREMES = [0, 1, -1, 5, 2**31, -(2**40), 2**63 - 1, -(2**63)]


class Shifted(nn.Module):
    def forward(self, x: Tensor, n: int, at: dict[str, int]) -> Tensor:
        return (x + n) * at["factor"]


@pytest.mark.usefixtures("compiled_here")
def test_a_compiled_graph_has_the_numbers_of_each_call_and_calls_no_operator_for_them(cache_dir: Path) -> None:
    module = Shifted().eval()
    x = torch.arange(6).reshape(2, 3)
    with torch.no_grad():
        served = gearcache.cache_compile(module.forward, config=strict_config("inductor"), dynamic=True)
        for n in EXTREMES:
            for factor in (3, -2):
                assert torch.equal(served(x, n, {"factor": factor}), module(x, n, {"factor": factor}))
    objects = [data for path in cache_dir.rglob("blobs/*/*") if (data := path.read_bytes()).startswith(b"\x7fELF")]
    assert objects
    assert not any(b"aoti_torch_item_int64" in data for data in objects)


def test_a_source_without_numbers_stays_as_it_is() -> None:
    written = CppSource("aoti_torch_item_int64(buf0, &u0);", "")
    assert with_numbers_read(written) == written
