"""Sets that a method makes: it is served where their order makes no difference, and refused where it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.ge_cache.capture import orders
from tests.support.bodies import Nets, assert_as_in_python, assert_refused, nets_of
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config

MODULE = """
import torch

NAMES = ("query", "key", "value", "gate")
SIZES = {"query": 1.5, "key": 2.5, "value": 3.5, "gate": 4.5}


def positions(pattern):
    '''As einops reads a pattern: loops over sets, in which each name has its place.'''
    left, right = (side.split() for side in pattern.split("->"))
    found = {name: place for place, name in enumerate(left)}
    for name in set(right):
        if name not in found:
            raise ValueError(name)
    known = {name for name in left if name in right}
    total = 1
    for name in known:
        total *= found[name] + 1
    return [found[name] for name in right], total


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = []

    def method(self, x):
"""
SERVED: dict[str, str] = {
    "membership": 'kept = {name for name in NAMES if name != "key"}\nreturn x + ("key" in kept) + 2 * ("gate" in kept)',
    "a size": 'return x + len(set(NAMES) - {"key"}) + len({*NAMES, "other"})',
    "a comparison": 'return x + (set(NAMES) >= {"key"}) + (set(NAMES) == frozenset(NAMES))',
    "a pattern": 'order, total = positions("b c a -> a b c")\nreturn x.unsqueeze(0).permute(order) * total',
    "a loop for an error": "for name in {*NAMES}:\n    if name not in SIZES:\n        raise KeyError(name)\nreturn x",
    "a sum of ints": "return x + sum(len(name) for name in set(NAMES))",
    "another set": "return x + len({name[0] for name in set(NAMES)})",
    "all of them": "return x + all(name in SIZES for name in set(NAMES))",
    "the same order twice": "names = set(NAMES)\nreturn x + (list(names) == list(names))",
    "a text that nobody sees": 'assert len(set(NAMES)) == 4, f"not {set(NAMES)}"\nreturn x + 1',
}
REFUSED: dict[str, str] = {
    "the first": "return x * SIZES[list(set(NAMES))[0]]",
    "the one in the middle": "names = list(set(NAMES[:3]))\nreturn x * SIZES[names[1]]",
    "a loop over operations": "for name in set(NAMES):\n    x = x * 2 + SIZES[name]\nreturn x",
    "a text": "return x + 1, str(set(NAMES))",
    "the keys of a result": "return {name: x + 1 for name in set(NAMES)}",
    "what is popped": "names = set(NAMES)\nreturn x * SIZES[names.pop()]",
    "a sum of floats": "total = 0.0\nfor each in {*SIZES.values()}:\n    total = total / 2 + each\nreturn x * total",
    "the largest by a key": "return x * SIZES[max(set(NAMES), key=len)]",
    "an iterator": "return x * SIZES[next(iter(set(NAMES)))]",
    "two that come first": "one, two = set(NAMES[:2]), set(NAMES[:2])\nreturn x * (list(one)[0] == list(two)[0])",
    "a list of the module": "self.rows.extend(set(NAMES))\nreturn x + 1",
    "an attribute": "for name in set(NAMES):\n    if hasattr(self, name) or name == 'key':\n        break\nreturn x",
}


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nets:
    return nets_of(MODULE, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", SERVED)
def test_a_set_whose_order_makes_no_difference_is_served(nets: Nets, name: str, tmp_path: Path) -> None:
    assert_as_in_python(nets(SERVED[name]), tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_a_set_whose_order_reaches_a_result_is_refused(nets: Nets, name: str, tmp_path: Path) -> None:
    assert_refused(nets(REFUSED[name]), "it goes through a set that it makes", tmp_path)


def test_symbols_of_sizes_are_compared_too(nets: Nets, tmp_path: Path) -> None:
    net, twin = nets(SERVED["a pattern"])
    cached: Any = gearcache.cache_compile(
        net.method, dynamic=True, cache_dir=tmp_path / "cache", config=strict_config()
    )
    for size in (3, 5):
        assert torch.equal(cached(torch.ones(size, 4)), twin.method(torch.ones(size, 4)))


def test_two_traces_of_one_call_are_alike_and_other_graphs_are_not(
    nets: Nets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[Any, Any]] = []
    alike = orders.are_alike
    monkeypatch.setattr(
        "gearcache.ge_cache.capture.capture.are_alike", lambda *pair: compared.append(pair) or alike(*pair)
    )
    for body in ("return x + len(list(set(NAMES)))", "return x - len(list(set(NAMES)))"):
        net = nets(body)[0]
        gearcache.cache_compile(net.method, cache_dir=tmp_path / "cache", config=strict_config())(torch.ones(3, 4))
    assert len(compared) == 2 * len(orders.ARRANGEMENTS)
    assert not alike(compared[0][0], compared[-1][0])


def test_other_orders_move_every_item_and_turn_every_pair_round() -> None:
    items = list("abcde")
    found = [orders.arranged(items, name, 1) for name in orders.ARRANGEMENTS]
    assert all(sorted(each) == items for each in found)
    assert found[0] == items[::-1]
    assert all(one != two for one, two in zip(items, found[1], strict=True))
    assert orders.arranged(items, "shuffled", 2) != orders.arranged(items, "shuffled", 1)


RELAUNCHED = """
import importlib, sys
import torch, gearcache
sys.path.insert(0, sys.argv[1])
net = importlib.import_module("constructs").Net()
cached = gearcache.cache_compile(net.method, cache_dir=sys.argv[2], config=gearcache.CompilerConfig(backend="eager"))
import json
print(json.dumps([cached(torch.ones(3, 4)).tolist(), cached.stats.traces]))
"""


def test_a_process_of_another_hash_seed_hits_and_gives_the_same(nets: Nets, tmp_path: Path) -> None:
    nets(SERVED["a pattern"])
    found = [
        run_python(RELAUNCHED, str(tmp_path), str(tmp_path / "cache"), environ={"PYTHONHASHSEED": seed})
        for seed in ("1", "2", "3")
    ]
    assert [traces for _, traces in found] == [1, 0, 0]
    assert found[0][0] == found[1][0] == found[2][0]
