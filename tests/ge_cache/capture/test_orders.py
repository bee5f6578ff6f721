"""Sets that a method makes, beside their rows in `tests.cases`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.ge_cache.capture import orders
from tests.cases.case import text
from tests.cases.of_sets_made import SERVED, Net
from tests.support.scenarios import strict_config


def test_symbols_of_sizes_are_compared_too(cache_dir: Path) -> None:
    net, twin = SERVED["a pattern"](), SERVED["a pattern"]()
    cached: Any = gearcache.cache_compile(net.run, dynamic=True, config=strict_config())
    for size in (3, 5):
        assert torch.equal(cached(torch.ones(size, 4)), twin.run(torch.ones(size, 4)))


def test_two_traces_of_one_call_are_alike_and_other_graphs_are_not(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[Any, Any]] = []
    alike = orders.are_alike
    monkeypatch.setattr(
        "gearcache.ge_cache.capture.capture.are_alike", lambda *pair: compared.append(pair) or alike(*pair)
    )
    for body in ("return x + len(list(set(NAMES)))", "return x - len(list(set(NAMES)))"):
        net = text(Net, body)()
        gearcache.cache_compile(net.run, config=strict_config())(torch.ones(3, 4))
    assert len(compared) == 2 * len(orders.ARRANGEMENTS)
    assert not alike(compared[0][0], compared[-1][0])


def test_other_orders_move_every_item_and_turn_every_pair_round() -> None:
    items = list("abcde")
    found = [orders.arranged(items, name, 1) for name in orders.ARRANGEMENTS]
    assert all(sorted(each) == items for each in found)
    assert found[0] == items[::-1]
    assert all(one != two for one, two in zip(items, found[1], strict=True))
    assert orders.arranged(items, "shuffled", 2) != orders.arranged(items, "shuffled", 1)
