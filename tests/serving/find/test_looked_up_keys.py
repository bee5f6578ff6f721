"""Lookups in arguments and hooks, and in tables of the module whose keys are modules; other keys have rows as cases."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config


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


class OneMore(list[int]):
    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(place) + 1


class Doubled(tuple[int, ...]):
    def __getitem__(self, place: Any) -> Any:
        return 2 * tuple.__getitem__(self, place)


class AsOne(tuple[int, ...]):
    def __len__(self) -> int:
        return 1


class OfOwnClasses(nn.Module):
    def related(self, x: Tensor, other: Tensor, table: dict[str, Tensor]) -> Tensor:
        return x + other if "k" in table and other is table["k"] else x - other

    def decided(self, x: Tensor, items: list[int]) -> Tensor:
        return x + 100 if items[0] == 6 else x + items[0]

    def first(self, x: Tensor, items: tuple[int, ...]) -> Tensor:
        return x + items[0]

    def all(self, x: Tensor, items: tuple[int, ...]) -> Tensor:
        for item in items:
            x = x + item
        return x


def test_a_call_reads_an_item_as_the_method_does_whatever_class_the_container_has(cache_dir: Path) -> None:
    x, held = torch.ones(2), torch.full((2,), 5.0)
    module = OfOwnClasses()
    served = gearcache.cache_compile(module.decided, config=strict_config(), dynamic=False)
    for items in (OneMore([5]), OneMore([4]), [6], [5]):
        assert torch.equal(served(x, items), module.decided(x, items))
    served = gearcache.cache_compile(module.related, config=strict_config(), dynamic=False)
    for given in ({"k": held}, {}):
        table: Any = collections.defaultdict(lambda: held, given)
        assert torch.equal(served(x, held, table), module.related(x, held, table))
        assert list(table) == list(given)


@pytest.mark.parametrize(("items", "name"), [(Doubled([2]), "first"), (AsOne([1, 2]), "all")])
def test_a_tuple_that_gives_its_items_by_methods_of_its_own_is_refused(cache_dir: Path, items: Any, name: str) -> None:
    served = gearcache.cache_compile(getattr(OfOwnClasses(), name), config=strict_config())
    with pytest.raises(CaptureError, match="`items` is a tuple whose class has a"):
        served(torch.ones(2), items)


def scaled_by(factor: float) -> Callable[..., Tensor]:
    return lambda module, arguments, result: result * factor


def raised(module: nn.Module, arguments: Any, result: Tensor) -> Tensor:
    return result + 1


class Hooked(nn.Module):
    """Has a layer with hooks, of which the last one runs first."""

    def __init__(self, *hooks: Any) -> None:
        super().__init__()
        self.layer = nn.Identity()
        for hook in hooks:
            self.layer.register_forward_hook(hook, prepend=hook is hooks[-1])

    def run(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def test_moved_keys_are_read_in_their_places(cache_dir: Path) -> None:
    x = torch.ones(2)
    hooks: list[tuple[Any, ...]] = [
        (scaled_by(2.0), scaled_by(3.0)),
        (scaled_by(2.0), scaled_by(2.0)),
        (scaled_by(2.0), scaled_by(9.0)),
        (scaled_by(2.0), raised),
        (raised, scaled_by(2.0)),
    ]
    for pair in hooks:
        module = Hooked(*pair)
        served = gearcache.cache_compile(module.run, config=strict_config())
        for _ in range(3):
            assert torch.equal(served(x), module.run(x)), pair
            module.layer._forward_hooks.move_to_end(next(iter(module.layer._forward_hooks)))
        for hook in module.layer._forward_hooks.values():
            if hook.__closure__:
                hook.__closure__[0].cell_contents = 5.0
        assert torch.equal(served(x), module.run(x)), pair


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

    def named(self) -> list[Any]:
        """Return the table with the names of modules."""
        names = {layer: name for name, layer in self.named_children()}
        return [(names.get(key, "foreign"), torch.as_tensor(value).tolist()) for key, value in self.table.items()]


def test_modules_as_keys_of_a_table_are_found_and_stay_apart(cache_dir: Path) -> None:
    x = torch.ones(2)
    first_keys: list[Callable[[Noting], list[Any]]] = [
        lambda net: [],
        lambda net: [net.first],
        lambda net: [net.first, net.other],
        lambda net: [nn.Identity()],
        lambda net: [net.second],
    ]
    traces = []
    for _ in range(2):
        net, reference = Noting(), Noting()
        cached = gearcache.cache_compile(net.hooked, config=strict_config(), dynamic=False)
        for keys in first_keys:
            for each in (net, reference):
                each.table.clear()
                each.table.update(dict.fromkeys(keys(each), 2.0))
            assert torch.equal(cached(x), reference.hooked(x))
            assert net.named() == reference.named()
        traces.append(cached.stats.traces)
    assert traces[0] > 0 == traces[1]
