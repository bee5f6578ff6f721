"""Report symbolic floats that a trace makes, except inside operators.

sympy computes with real numbers: it simplifies `n * 0.1 * 10` to `n`, decides a branch on that without a guard, and
one node of the graph represents both.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from gearcache.ge_cache.private_torch.probe import Probes

probes = Probes()


@probes.at(torch.SymFloat, "__init__")
def made(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Note the symbols from which a float is made."""
    original(self, *arguments, **keywords)
    if not _is_inside_operator():
        for symbol in getattr(getattr(self.node, "_expr", None), "free_symbols", ()):
            trace.note("symbol of a float", symbol)


def _is_inside_operator() -> bool:
    """Return whether an operator is being tried on fake tensors: its internal numbers do not count."""
    frame = sys._getframe()
    while (outer := frame.f_back) is not None:
        if outer.f_code.co_name == "__torch_dispatch__":
            return True
        frame = outer
    return False
