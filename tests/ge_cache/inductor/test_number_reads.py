"""Compiled code has the numbers of each call: ints and floats that it is given, and those that it takes out of tensors.

That eager graphs have them is shown by `tests/ge_cache/graphs/test_floats.py` and `test_numbers_from_tensors.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.ge_cache.inductor.number_reads import with_numbers_read
from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource
from tests.support.scenarios import strict_config

CALLS = [(0, 0.7), (1, 1 / 3), (-1, 1e-3), (2**31, 0.1), (-(2**40), 2.9), (2**63 - 1, 0.7), (-(2**63), 0.3)]


class Numbers(nn.Module):
    """What numbers become in a graph: terms, factors, bounds of masks, values of a tensor's elements, sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.position = 0
        self.scale = 1.0

    def forward(self, x: Tensor, y: Tensor, others: list[Tensor], n: int, at: dict[str, int]) -> Any:
        self.position += 1
        t, self.scale = self.scale, self.scale * 0.5
        wide, *narrow, nothing = others
        in_16_bits = [self.of_16_bits(z, at["factor"], t) for z in narrow]
        empty = [nothing * t, nothing / n]  # AOTInductor returns one tensor twice
        return self.of_ints(x, n, at["factor"]), self.of_floats(y, wide, t), self.of_values(y), in_16_bits, empty

    def of_ints(self, x: Tensor, n: int, factor: int) -> Any:
        rows = torch.arange(2)[:, None]
        allowed = rows <= rows.t() + (self.position - 3)
        masked = torch.where(allowed, x[:, :2], -1).masked_fill(x[:, :2] > self.position, self.position)
        return (x + n) * factor, masked

    def of_floats(self, y: Tensor, wide: Tensor, t: float) -> Any:
        """Operators that compiled code computes bit for bit as eager mode does."""
        greatest = wide.max().item()
        results = [part for s in (1.0 - t / 7, greatest) for z in (y, wide) for part in (z * s, z / s, s - z, z > s)]
        return results, torch.full_like(y, t), torch.where(y > t, y, t), y.clamp(max=t), -t, t * 3, greatest

    def of_16_bits(self, y: Tensor, factor: int, t: float) -> Any:
        """Products and quotients are exact; of sums Inductor does not always round the number first, as eager does."""
        results = [part for s in (factor, factor * 1001 + 2, t, 1.0 - t / 7) for part in (y * s, y / s)]
        return [*results, y.clone().mul_(t), y[0, 0] * t, torch.scalar_tensor(t, dtype=y.dtype)]

    def of_values(self, y: Tensor) -> Any:
        places = torch.nonzero(y > 0.5)
        total = y.sum(dtype=torch.float64)
        before = total.item()
        total.add_(1)  # what was read stays as it was
        return y[y > 0.5], places, places[:, 1], y * before


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
def test_a_compiled_graph_has_the_numbers_of_each_call_and_calls_no_operator_for_them(cache_dir: Path) -> None:
    ours, theirs = Numbers().eval(), Numbers().eval()
    x = torch.arange(6).reshape(2, 3)
    served = gearcache.cache_compile(ours.forward, config=strict_config("inductor"), dynamic=True)
    with torch.no_grad():
        for number, (n, t) in enumerate(CALLS):
            for factor, position in ((3, 2**40), (-2, -9)):
                ours.position = theirs.position = position
                ours.scale = theirs.scale = t
                y = torch.rand(8, 8) * (0.4 + number)
                arguments = (x, y, [y.double() / 3, y.bfloat16(), y.half(), y[:0]], n, {"factor": factor})
                torch.testing.assert_close(served(*arguments), theirs.forward(*arguments), rtol=0, atol=0)
    assert served.stats.compiles == 1
    objects = [data for path in cache_dir.rglob("blobs/*/*") if (data := path.read_bytes()).startswith(b"\x7fELF")]
    assert objects
    assert not any(b"aoti_torch_item_int64" in data for data in objects)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
def test_under_autocast_too(cache_dir: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, n: int) -> Any:
            return x * (n / 7) + n, n / 7

    served = gearcache.cache_compile(Scaled().forward, config=strict_config("inductor"), dynamic=True)
    x = torch.rand(4)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for n in (3, 5):
            torch.testing.assert_close(served(x, n), Scaled().forward(x, n), rtol=0, atol=0)
    assert served.stats.compiles == 1


def test_a_source_without_numbers_stays_as_it_is() -> None:
    written = CppSource("aoti_torch_item_int64(buf0, &u0);", "")
    assert with_numbers_read(written) == written
