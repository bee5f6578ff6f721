"""Make fake inputs with symbolic sizes, from the plain form in a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gearcache.ge_cache.compile_job import GearInput
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.gears.expressions import expression_function


def numbers(row: Sequence[Any], symbolic: private_symbols.SymbolicInputs) -> list[Any]:
    """Return sizes as ints and symbolic ints; `{"expression": text}` stands for the latter."""
    values = {**symbolic.sizes, **symbolic.numbers}
    return [
        expression_function(item["expression"], tuple(values))(**values, max=torch.sym_max, min=torch.sym_min)
        if isinstance(item, dict)
        else item
        for item in row
    ]


def symbolic_examples(
    symbols: Mapping[str, Any], specs: Sequence[GearInput]
) -> tuple[list[torch.Tensor], private_symbols.SymbolicInputs]:
    """Return one fake tensor per spec with the sizes and strides of `symbols`, and the collector of assumptions.

    The numbers of a job follow the tensors of its inputs: `symbolic.numbers` has them.
    """
    rows = symbols.get("numbers", [])
    symbolic = private_symbols.SymbolicInputs(
        dict(symbols["hints"]),
        {name: hint for name, hint, *_ in rows},
        {name: limits for name, _, *limits in rows},
    )
    fakes = [
        symbolic.tensor(numbers(sizes, symbolic), numbers(strides, symbolic), spec.dtype, spec.device)
        for spec, sizes, strides in zip(specs, symbols["sizes"], symbols["strides"], strict=True)
    ]
    return fakes, symbolic
