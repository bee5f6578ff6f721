"""Flags of torch's functions that a method computes from sizes: the answer is taken, others get another graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: F401 - the texts use it

import gearcache
from tests.cases.case import Case, text
from tests.support.scenarios import strict_config


class Net(Case):
    """Has the methods of the texts."""


#: Answers are the same at all sizes that are tried, or are not.
ALIKE: dict[str, str] = {
    "attention": "return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 1)",
}
OTHER: dict[str, str] = {
    "attention": "return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 4)",
    "a value": "return x.new_full((2,), x.shape[1] > 4)",
}
#: What takes a symbol, and a condition of the graph, need no graph for each answer.
SYMBOLIC: dict[str, str] = {
    "a symbol": "return x * torch.sym_ite(torch.sym_not(x.shape[1] > 4), 5, 3)",
    "a check with a message": "torch._check_value(x.shape[1] > 2, lambda: 'few')\nreturn x * 2",
}


@pytest.mark.parametrize(
    ("body", "traces"),
    [(body, traces) for bodies, traces in ((ALIKE, 1), (OTHER, 2), (SYMBOLIC, 1)) for body in bodies.values()],
)
def test_a_flag_of_sizes_is_what_python_gives(body: str, traces: int, cache_dir: Path) -> None:
    net, twin = text(Net, body)(), text(Net, body)()
    cached: Any = gearcache.cache_compile(net.run, dynamic=True, config=strict_config())
    for size in (3, 6, 4, 7):
        x = torch.randn(2, size, 5, 8)
        torch.testing.assert_close(cached(x), twin.run(x))
    assert cached.stats.traces == traces
