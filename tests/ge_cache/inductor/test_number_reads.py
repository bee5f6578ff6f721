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
    """What ints become in a graph: terms, factors, bounds of masks."""

    def __init__(self) -> None:
        super().__init__()
        self.position = 0

    def forward(self, x: Tensor, n: int, at: dict[str, int]) -> tuple[Tensor, ...]:
        self.position += 1
        rows = torch.arange(2)[:, None]
        allowed = rows <= rows.t() + (self.position - 3)
        masked = torch.where(allowed, x[:, :2], -1).masked_fill(x[:, :2] > self.position, self.position)
        return (x + n) * at["factor"], masked


@pytest.mark.usefixtures("compiled_here")
def test_a_compiled_graph_has_the_numbers_of_each_call_and_calls_no_operator_for_them(cache_dir: Path) -> None:
    ours, theirs = Shifted().eval(), Shifted().eval()
    x = torch.arange(6).reshape(2, 3)
    with torch.no_grad():
        served = gearcache.cache_compile(ours.forward, config=strict_config("inductor"), dynamic=True)
        for n in EXTREMES:
            for factor, position in ((3, 2**40), (-2, -9), (3, 2)):
                ours.position = theirs.position = position
                arguments = (x, n, {"factor": factor})
                torch.testing.assert_close(served(*arguments), theirs.forward(*arguments), rtol=0, atol=0)
    assert served.stats.compiles < 4
    objects = [data for path in cache_dir.rglob("blobs/*/*") if (data := path.read_bytes()).startswith(b"\x7fELF")]
    assert objects
    assert not any(b"aoti_torch_item_int64" in data for data in objects)


def test_a_source_without_numbers_stays_as_it_is() -> None:
    written = CppSource("aoti_torch_item_int64(buf0, &u0);", "")
    assert with_numbers_read(written) == written
