"""Results of compiled graphs are those of eager mode, to the bit: numbers of each call, strides, and which are inputs.

One graph for all, as each takes g++ seconds. That eager graphs have the numbers of each call is shown by
`tests/ge_cache/graphs/test_floats.py` and `test_numbers_from_tensors.py`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import gearcache
from gearcache.errors import CompileError
from gearcache.ge_cache.inductor.result_forms import put_in_form, result_forms
from gearcache.ge_cache.private_torch.codegen import inductor as private_inductor
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


class Laid(nn.Module):
    """Results that Inductor would lay out otherwise, or take for its inputs: `x + torch.zeros(3)` for `x`."""

    def forward(self, x: Tensor, row: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        once = row + 0
        normed = nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4))
        laid = [torch.cat([x]), torch.cat([x.permute(2, 0, 1)]).relu(), normed, x.roll((1, 2), (0, 2)) * 2]
        joined = torch.cat(row.view(1, 3).split([1, 2], 1), 1)
        return laid, [row + torch.zeros(3), once.view(3, 1), row * 1, row - 0, once, joined]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.laid = Numbers(), Laid()

    def forward(self, numbers: tuple[Any, ...], laid: tuple[Tensor, Tensor]) -> Any:
        return self.numbers(*numbers), self.laid(*laid)


def _assert_laid(found: Any, expected: Any, row: Tensor) -> None:
    """What a caller does with them, such as `.view(-1)`, works or fails as it does in eager."""
    (laid, copies), (laid_in_eager, copies_in_eager) = found, expected
    assert [each.stride() for each in laid] == [each.stride() for each in laid_in_eager]
    for each in (copies, copies_in_eager):
        assert len({tensor.data_ptr() for tensor in (row, *each)}) == 6
    row.mul_(2)
    torch.testing.assert_close(copies, copies_in_eager, rtol=0, atol=0)
    assert [each.signbit().tolist() for each in copies] == [each.signbit().tolist() for each in copies_in_eager]


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
def test_a_compiled_graph_gives_what_eager_gives_and_calls_no_operator_for_numbers(cache_dir: Path) -> None:
    ours, theirs = Net().eval(), Net().eval()
    x = torch.arange(6).reshape(2, 3)
    image = torch.randn(5, 4, 3).transpose(0, 2)
    served = gearcache.cache_compile(ours.forward, config=strict_config("inductor"), dynamic=True)
    with torch.no_grad():
        for number, (n, t) in enumerate(CALLS):
            for factor, position in ((3, 2**40), (-2, -9)):
                ours.numbers.position = theirs.numbers.position = position
                ours.numbers.scale = theirs.numbers.scale = t
                y = torch.rand(8, 8) * (0.4 + number)
                row = torch.tensor([1.0, -0.0, 3.0])
                numbers = x, y, [y.double() / 3, y.bfloat16(), y.half(), y[:0]], n, {"factor": factor}
                found, expected = (net(numbers, (image, row)) for net in (served, theirs.forward))
                torch.testing.assert_close(found, expected, rtol=0, atol=0)
                _assert_laid(found[1], expected[1], row)
    assert served.stats.compiles == 1
    objects = [data for path in cache_dir.rglob("blobs/*/*") if (data := path.read_bytes()).startswith(b"\x7fELF")]
    assert objects
    assert not any(b"aoti_torch_item_int64" in data for data in objects)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
def test_numbers_and_attention_are_right_under_autocast_too(cache_dir: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, n: int) -> Any:
            attended = nn.functional.scaled_dot_product_attention(x, x, x)  # its kernel has a dropout, left at 0
            return x * (n / 7) + n, n / 7, attended

    served = gearcache.cache_compile(Scaled().forward, config=strict_config("inductor"), dynamic=True)
    x = torch.rand(1, 2, 4, 8)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for n in (3, 5):
            torch.testing.assert_close(served(x, n), Scaled().forward(x, n), rtol=0, atol=0)
    assert served.stats.compiles == 1


class Counted(nn.Module):
    """Results whose dtype nothing names, and an expanded one beside what it is of."""

    def forward(self, x: Tensor) -> Any:
        turned = x.t() + 1
        return x / 3, torch.zeros(4), turned[:1].expand_as(turned), turned

    def placed(self, x: Tensor) -> Tensor:
        return x.as_strided((2,), (1,), 0) * 1.0


@pytest.mark.slow
def test_a_worker_compiles_in_the_state_of_its_process(cache_dir: Path) -> None:
    served = gearcache.cache_compile(Counted().forward, config=strict_config("inductor"))
    x = torch.arange(12).reshape(3, 4)
    torch.set_default_dtype(torch.float64)
    try:
        found, expected = served(x), Counted().forward(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert served.stats.compiles == 1
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    with pytest.raises(gearcache.errors.CaptureError, match=r"as_strided.*storage offset.*backend='eager'"):
        gearcache.cache_compile(Counted().placed, config=strict_config("inductor"))(torch.arange(6.0)[2:])


def test_a_graph_whose_results_would_have_another_dtype_is_not_compiled() -> None:
    recorded = fx.symbolic_trace(lambda x: [x + 1])
    (output,) = recorded.graph.find_nodes(op="output")
    output.args[0][0].meta["val"] = torch.ones(2)
    put_in_form(recorded, result_forms(recorded))
    with pytest.raises(TypeError, match=r"result 0 .* torch\.float32, was recorded as torch\.float64"):
        put_in_form(recorded, [["torch.float64", [0]]])


@pytest.mark.usefixtures("compiled_here")
def test_an_input_that_inductor_returns_in_place_of_a_copy_is_an_error(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its passes does it: here, one that is off otherwise."""

    class Joined(nn.Module):
        def run(self, x: Tensor) -> Tensor:
            return torch.cat(x.split([1, 2], 1), 1)

    monkeypatch.setattr(private_inductor, "kept_copies", contextlib.nullcontext)
    cached = gearcache.cache_compile(Joined().run, config=strict_config("inductor"), dynamic=False)
    with torch.no_grad(), pytest.raises(CompileError, match="returns an input as the result 0, which must be a copy"):
        cached(torch.randn(2, 3))
