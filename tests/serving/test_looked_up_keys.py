"""Lookups in tables of the module whose keys are classes, objects, or made by the method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree

import gearcache
from gearcache.errors import CaptureError
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


@pytest.mark.parametrize(("key", "other"), [(Left, Right), ("a", "b"), (3, 4)])
@pytest.mark.parametrize("name", ["of_made_key", "of_class"])
def test_a_changed_table_is_seen_by_the_next_instance(cache_dir: Path, key: Any, other: Any, name: str) -> None:
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
