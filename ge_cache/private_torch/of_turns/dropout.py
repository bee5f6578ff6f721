"""Make fake tensors treat dropout as real ones do: see `private_torch.decompositions`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._decomp import decomposition_table

from gearcache.ge_cache.private_torch.probe import Place, Probes

_DROPOUT: Any = torch.ops.aten.dropout.default
probes = Probes()
# It holds the functions that were there when each was first called.
probes.at_value(_DROPOUT, "_dispatch_cache", lambda kept: {})


def _kernels() -> Iterator[Place]:
    yield from ((_DROPOUT.py_kernels, key) for key in [*_DROPOUT.py_kernels])
    yield decomposition_table, _DROPOUT


@probes.at_each(_kernels)
def dropped(trace: Any, original: Any, /, input: torch.Tensor, p: float, train: bool | None) -> Any:
    """Return the input itself where nothing is dropped."""
    return original(input, p, train) if train and p != 0 else input
