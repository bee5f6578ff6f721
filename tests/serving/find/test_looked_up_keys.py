"""Lookups in tables of the module whose keys are classes, objects, or made by the method."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree

import gearcache
from gearcache.errors import CaptureError
from tests.support.sampled import sampled_rows
from tests.support.scenarios import strict_config


class Left:
    pass


class Right:
    pass


class First(dict[str, Tensor]):
    pass


class Second(dict[str, Tensor]):
    pass


LEFT = Left()


class Table(nn.Module):
    def __init__(self, key: Any = LEFT) -> None:
        super().__init__()
        self.key = key
        self.table: dict[Any, float] = {}

    def of_made_key(self, x: Tensor) -> Tensor:
        return x * self.table.get((self.key, 1), 9.0)

    def of_class(self, x: Tensor) -> Tensor:
        return x * self.table.get(self.key, 9.0)

    def leaves(self, x: Tensor) -> Tensor:
        return sum(_pytree.tree_leaves({"a": (x, 2 * x)}))  # type: ignore[return-value]


def test_a_made_key_that_was_absent_is_looked_for_again(cache_dir: Path) -> None:
    with pytest.raises(CaptureError, match="a key that it makes and that holds an object"):
        gearcache.cache_compile(Table().of_made_key, config=strict_config(), dynamic=False)(torch.ones(2))


@pytest.mark.parametrize(("name", "key", "other"), [("of_made_key", 3, 4), ("of_class", Left, Right)])
def test_a_changed_table_is_seen_by_the_next_instance(cache_dir: Path, name: str, key: Any, other: Any) -> None:
    x = torch.ones(2)
    contents: list[dict[Any, float]] = [{}, {key: 2.0}, {(other, 1): 3.0, other: 4.0}, {other: 4.0, key: 5.0}]
    for content in contents:
        module = Table(key)
        module.table.update(content)
        found = gearcache.cache_compile(getattr(module, name), config=strict_config(), dynamic=False)(x)
        assert torch.equal(found, getattr(module, name)(x)), content


def test_classes_that_another_model_registers_for_pytree_are_no_miss(cache_dir: Path) -> None:
    x = torch.ones(2)
    before = dict(_pytree.SUPPORTED_NODES)
    try:
        for order in ((First, Second), (Second, First)):  # as in processes that import their models in another order
            _pytree.SUPPORTED_NODES.clear()
            _pytree.SUPPORTED_NODES.update(before)
            for cls in order:
                _pytree.SUPPORTED_NODES[cls] = _pytree.SUPPORTED_NODES[dict]
            cached = gearcache.cache_compile(Table().leaves, config=strict_config(), dynamic=False)
            assert torch.equal(cached(x), 3 * x)
        assert (cached.stats.hits, cached.stats.traces) == (1, 0)
    finally:
        _pytree.SUPPORTED_NODES.clear()
        _pytree.SUPPORTED_NODES.update(before)


class Level(enum.IntEnum):
    ONE = 1


class Place(NamedTuple):
    row: Any
    column: Any


class Equal(nn.Module):
    """Looks for `self.key` in containers of each kind."""

    def __init__(self, key: Any) -> None:
        super().__init__()
        self.key = key
        self.table: dict[Any, float] = {}
        self.ordered: collections.OrderedDict[Any, float] = collections.OrderedDict()
        self.members: set[Any] = set()

    def put(self, key: Any) -> None:
        self.table[key] = self.ordered[key] = 2.0
        self.members.add(key)

    def get(self, x: Tensor) -> Tensor:
        return x * self.table.get(self.key, 5.0)

    def get_made(self, x: Tensor) -> Tensor:
        return x * self.table.get((self.key, "a"), 5.0)

    def get_ordered(self, x: Tensor) -> Tensor:
        return x * self.ordered.get(self.key, 5.0)

    def item(self, x: Tensor) -> Tensor:
        try:
            return x * self.table[self.key]
        except KeyError:
            return x * 5.0

    def is_member(self, x: Tensor) -> Tensor:
        return x * (2.0 if self.key in self.members else 5.0)

    def is_key(self, x: Tensor) -> Tensor:
        return x * (2.0 if self.key in self.table.keys() else 5.0)  # noqa: SIM118


EQUAL: list[tuple[str, Any]] = [
    *((name, True) for name in ("get_made", "get_ordered", "is_key", "get", "item", "is_member")),
    ("get", Level.ONE),
    ("item", 1.0),
    ("is_member", 1.0),
]


# Each way to look, and each type of key; with THOROUGH=1 `True` by all of them.
@pytest.mark.parametrize(("name", "key"), sampled_rows(EQUAL, [EQUAL[0], EQUAL[1], EQUAL[2], *EQUAL[6:]]))
def test_an_equal_key_of_another_type_is_the_key(cache_dir: Path, key: Any, name: str) -> None:
    x = torch.ones(2)
    for first in ([], [2], [1]):
        module = Equal(key)
        cached = gearcache.cache_compile(getattr(module, name), config=strict_config(), dynamic=False)
        for present in first:
            module.put((present, "a") if name == "get_made" else present)
        assert torch.equal(cached(x), getattr(module, name)(x)), first
        module.put((1.0, "a") if name == "get_made" else 1.0)
        assert torch.equal(cached(x), getattr(module, name)(x)), first


KEYS: list[tuple[str, Any]] = [
    ("item", (0, (True, None))),
    ("item", Place(1, "b")),
    ("get", frozenset({1, 2})),
    ("get", 1 << 70),
    ("is_member", 1j),
    ("is_member", torch.float16),
]


@pytest.mark.parametrize(("name", "key"), sampled_rows(KEYS, [KEYS[1], KEYS[2], KEYS[5]]), ids=repr)
def test_a_key_that_is_found_is_found_again_and_its_change_is_seen(cache_dir: Path, name: str, key: Any) -> None:
    x, traces = torch.ones(2), []
    for value in (2.0, 2.0, 7.0):
        module = Equal(key)
        module.put("another")
        module.put(key)
        module.table[key] = value
        cached = gearcache.cache_compile(getattr(module, name), config=strict_config(), dynamic=False)
        assert torch.equal(cached(x), getattr(module, name)(x))
        traces.append(cached.stats.traces)
        module.table[key] = 11.0
        assert torch.equal(cached(x), getattr(module, name)(x))
        del module.table[key]
        module.members.remove(key)
        assert torch.equal(cached(x), getattr(module, name)(x))
    assert traces[:2] == [1, 0]


class OfArgument(nn.Module):
    def first(self, lists: dict[Any, list[Tensor]], x: Tensor) -> Tensor:
        return x * lists["a"][0] if "a" in lists else x * lists["b"][0]


def test_a_call_makes_no_item_of_a_defaultdict_among_its_arguments(cache_dir: Path) -> None:
    x = torch.ones(2)
    cached = gearcache.cache_compile(OfArgument().first, config=strict_config(), dynamic=False)
    for name in ("a", "b", "a", "b"):
        lists: collections.defaultdict[str, list[Tensor]] = collections.defaultdict(list, {name: [2 * x]})
        assert torch.equal(cached(lists, x), 2 * x)
        assert list(lists) == [name]


class Noting(nn.Module):
    """Keeps a table by its modules, as forward hooks do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.other = nn.Identity(), nn.Identity(), nn.Identity()
        self.table: dict[Any, Any] = {}
        for layer in (self.first, self.second):
            layer.register_forward_hook(self._note)

    def _note(self, layer: nn.Module, _: Any, result: Tensor) -> None:
        self.table[layer] = result

    def hooked(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) + 1)  # type: ignore[no-any-return]

    def paired(self, x: Tensor) -> Tensor:
        self.table[self.first, "a"] = 2.0
        return x * self.table.get((self.second, "a"), 3.0)

    def popped(self, x: Tensor) -> Tensor:
        return x * self.table.pop(self.first, 4.0) + len(self.table)

    def placed(self, x: Tensor) -> Tensor:
        self.table[self.first] = 1.0
        for place, (layer, factor) in enumerate(self.table.items()):
            x = x * factor + place * (3 if layer is self.first else 1)
        return x

    def named(self) -> list[Any]:
        """Return the table with the names of modules."""
        names = {layer: name for name, layer in self.named_children()}

        def shown(key: Any) -> Any:
            return (shown(key[0]), key[1]) if isinstance(key, tuple) else names.get(key, "foreign")

        return [
            (shown(key), value.tolist() if isinstance(value, Tensor) else value) for key, value in self.table.items()
        ]


@pytest.mark.parametrize("name", ["hooked", "paired", "popped", "placed"])
def test_modules_as_keys_of_a_table_are_found_and_stay_apart(cache_dir: Path, name: str) -> None:
    x = torch.ones(2)
    first_keys: list[Callable[[Noting], list[Any]]] = [
        lambda net: [],
        lambda net: [net.first],
        lambda net: [net.first, net.other],
        lambda net: [nn.Identity()],
        lambda net: [(net.second, "a"), net.second],
    ]
    traces = []
    for _ in range(2):
        net, reference = Noting(), Noting()
        cached = gearcache.cache_compile(getattr(net, name), config=strict_config(), dynamic=False)
        for keys in first_keys:
            for each in (net, reference):
                each.table.clear()
                each.table.update(dict.fromkeys(keys(each), 2.0))
            assert torch.equal(cached(x), getattr(reference, name)(x))
            assert net.named() == reference.named()
        traces.append(cached.stats.traces)
    assert traces[0] > 0 == traces[1]
