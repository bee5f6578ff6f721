"""Results that are views of another dtype: parts of complex numbers, complex numbers of pairs, the bits of a number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run, traced


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 2))
        self.register_buffer("table", torch.randn(4, dtype=torch.complex64))

    def as_complex(self, z: Tensor, r: Tensor) -> Any:
        return torch.view_as_complex(r), torch.view_as_complex(r[1:])

    def parts(self, z: Tensor, r: Tensor) -> Any:
        return z.real, z.imag, z.imag[1:], z

    def of_result(self, z: Tensor, r: Tensor) -> Any:
        doubled, pairs = z * 2, r * 2
        return doubled, torch.view_as_real(doubled), doubled.imag, torch.view_as_complex(pairs), pairs

    def of_weights(self, z: Tensor, r: Tensor) -> Any:
        table: Tensor = self.table  # type: ignore[assignment]
        return torch.view_as_complex(self.weight), table.real, torch.view_as_complex(self.weight.detach())

    def smaller(self, z: Tensor, r: Tensor) -> Any:
        halves = r.view(torch.int16)
        return halves, halves[1:, ::2], halves.t(), z.view(torch.int8)[3:], self.weight.view(torch.uint8)

    def larger(self, z: Tensor, r: Tensor) -> Any:
        pairs = r.view(torch.int64)
        return pairs, pairs[2:].view(torch.float64), self.weight.detach().view(torch.float64), pairs[:0]

    def written(self, z: Tensor, r: Tensor) -> Tensor:
        torch.view_as_real(z).mul_(2)
        part = z.real
        part.add_(1)
        return part


METHODS = [name for name, value in vars(Views).items() if name[0] != "_"]


def inputs(count: int, offset: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(count)
    whole = torch.randn(count + 3, dtype=torch.complex64)
    return whole[offset : offset + count], torch.randn(2 * count + 8)[2 * offset :][: 2 * count].view(count, 2)


def described(module: Views, given: tuple[Tensor, ...], results: Any) -> list[Any]:
    """What can be told of results: values, layout, and whose memory they have."""
    found = list(results) if isinstance(results, tuple) else [results]
    owners = [*given, module.weight, module.table, *found]
    return [
        [
            str(value.dtype),
            value.detach().resolve_conj().tolist()
            if not value.dtype.is_complex
            else torch.view_as_real(value).tolist(),
            list(value.stride()),
            value.storage_offset(),
            value.requires_grad,
            [value.untyped_storage().data_ptr() == owner.untyped_storage().data_ptr() for owner in owners],
        ]
        for value in found
    ]


@traced(len(METHODS))
def views_are_those_of_eager(run: Run) -> None:
    for name in METHODS:
        module = Views()
        cached = run.cache(getattr(module, name), dynamic=True)
        with torch.no_grad():
            for count, offset in ((4, 0), (4, 1), (6, 1), (6, 0)):
                plain, given = inputs(count, offset), inputs(count, offset)
                expected = described(module, plain, getattr(module, name)(*plain))
                label = f"{name} {count} {offset}"
                run.check(label, described(module, given, cached(*given)), expected)
                run.check(f"{label}, arguments", all(map(torch.equal, given, plain)), True)
