"""Results of compiled graphs lie in memory as those of eager do, whatever Inductor takes an operator apart into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache


class Net(torch.nn.Module):
    def run(self, x: torch.Tensor, row: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        joined, once = torch.cat([x]), row + 0
        normed = torch.nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4))
        return (
            [
                joined,
                torch.cat([x.permute(2, 0, 1)]).relu(),
                normed,
                x.roll((1, 2), (0, 2)) * 2,
            ],
            [row + torch.zeros(3), once.view(3, 1), row * 1, row - 0, once],
        )


@pytest.mark.usefixtures("compiled_here")
def test_results_have_the_strides_of_eager_and_are_no_inputs(tmp_path: Path) -> None:
    """What a caller does with them, such as `.view(-1)`, works or fails as it does in eager.

    Inductor takes `x + torch.zeros(3)` for `x`, and from torch 2.14 on `x + 0` too: eager makes another tensor.
    """
    net, x, row = Net(), torch.randn(5, 4, 3).transpose(0, 2), torch.tensor([1.0, -0.0, 3.0])
    config = gearcache.CompilerConfig(backend="inductor", strict=True)
    cached: Any = gearcache.cache_compile(net.run, dynamic=True, config=config, cache_dir=tmp_path)
    (laid, copies), (expected, expected_copies) = cached(x, row), net.run(x, row)
    for found, eager in zip(laid, expected, strict=True):
        assert found.stride() == eager.stride()
        assert torch.equal(found, eager)
    assert laid[0].view(-1).shape == (60,)
    for each in (copies, expected_copies):
        assert len({tensor.data_ptr() for tensor in (row, *each)}) == 5
    row.mul_(2)
    assert all(torch.equal(left, right) for left, right in zip(copies, expected_copies, strict=True))
    assert [each.signbit().tolist() for each in copies] == [each.signbit().tolist() for each in expected_copies]
