"""Sets that a method makes, beside their rows in `tests.cases`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import gearcache
from gearcache.ge_cache.capture import orders
from tests.cases.of_sets_made import SERVED
from tests.support.scenarios import strict_config


def test_symbols_of_sizes_are_compared_too(cache_dir: Path) -> None:
    net, twin = SERVED["a pattern"](), SERVED["a pattern"]()
    cached: Any = gearcache.cache_compile(net.run, dynamic=True, config=strict_config())
    for size in (3, 5):
        assert torch.equal(cached(torch.ones(size, 4)), twin.run(torch.ones(size, 4)))


def test_other_orders_move_every_item_and_turn_every_pair_round() -> None:
    items = list("abcde")
    found = [orders.arranged(items, name, 1) for name in orders.ARRANGEMENTS]
    assert all(sorted(each) == items for each in found)
    assert found[0] == items[::-1]
    assert all(one != two for one, two in zip(items, found[1], strict=True))
    assert orders.arranged(items, "shuffled", 2) != orders.arranged(items, "shuffled", 1)
