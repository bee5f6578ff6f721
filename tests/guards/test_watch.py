"""The watch: what was written since, told apart from what does not matter; in C and in Python alike."""

from __future__ import annotations

import gc
import random
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gearcache.guards.python_watch import PythonWatch
from gearcache.guards.tensor_layout import find_layout
from gearcache.guards.watch import sees_moved_memory, watch_class

WATCHES = [watch_class(), PythonWatch]
each_watch = pytest.mark.parametrize("watch", WATCHES, ids=["installed", "python"])


class Thing:
    level = 1

    def __init__(self) -> None:
        self.scale = 2.0
        self.shape = (1, "a", 2.5)


def over(watch: Callable[..., Any], **given: Any) -> Any:
    kinds = ("dicts", "lists", "collections", "cells", "slots", "tensors")
    return watch(*(given.get(kind, []) for kind in kinds))


def test_the_extension_was_built_and_knows_this_torch() -> None:
    assert watch_class() is not PythonWatch
    assert find_layout() is not None


@each_watch
def test_moved_memory_is_seen_and_a_write_in_place_is_not(watch: Callable[..., Any]) -> None:
    assert sees_moved_memory(watch)


@each_watch
@pytest.mark.parametrize(
    "move",
    [
        lambda tensor: tensor.share_memory_(),
        lambda tensor: setattr(tensor, "data", tensor.data.bfloat16()),
        lambda tensor: setattr(tensor, "data", tensor.data.clone()),
        lambda tensor: torch.utils.swap_tensors(tensor, torch.nn.Parameter(torch.ones(6, 6), requires_grad=False)),
        lambda tensor: tensor.untyped_storage().resize_(4096),
        lambda tensor: tensor.t_(),
        lambda tensor: setattr(tensor, "data", tensor.data[:3]),
    ],
)
def test_a_tensor_that_moved_is_seen(watch: Callable[..., Any], move: Callable[[Any], None]) -> None:
    tensor = torch.nn.Parameter(torch.randn(6, 6), requires_grad=False)
    watched = over(watch, tensors=[torch.zeros(3), tensor])
    assert watched.holds()
    move(tensor)
    assert watched.changed() == ("tensor", 1)


@each_watch
def test_only_the_keys_that_matter_count(watch: Callable[..., Any]) -> None:
    thing = Thing()
    held = thing.__dict__
    watched = over(watch, dicts=[(held, ("scale", "shape", "absent"))])
    thing.other = 1  # type: ignore[attr-defined]
    thing.scale = float("2.0")
    thing.shape = (int("1"), "a", float("2.5"))
    assert watched.holds()
    thing.scale = 2  # type: ignore[assignment]
    assert watched.changed() == ("dictionary", 0)
    thing.scale = 2.0
    assert watched.holds()
    thing.absent = None  # type: ignore[attr-defined]
    assert not watched.holds()
    del thing.absent  # type: ignore[attr-defined]
    assert watched.holds()
    del thing.scale
    assert not watched.holds()


@each_watch
def test_the_sign_of_zero_counts(watch: Callable[..., Any]) -> None:
    held = {"a": 0.0}
    watched = over(watch, dicts=[(held, ("a",))])
    held["a"] = -0.0
    assert not watched.holds()


@each_watch
def test_a_dictionary_as_a_whole_counts_with_every_key(watch: Callable[..., Any]) -> None:
    for held in ({1: 2}, OrderedDict(a=1)):
        watched = over(watch, dicts=[(held, None)])
        assert watched.holds()
        held["more"] = 3  # type: ignore[index]
        assert not watched.holds()


@each_watch
def test_members_of_classes_are_seen(watch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    watched = over(watch, dicts=[(Thing, ("level", "other"))])
    monkeypatch.setattr(Thing, "unrelated", 1, raising=False)
    assert watched.holds()
    monkeypatch.setattr(Thing, "level", 2)
    assert not watched.holds()


@each_watch
def test_lists_sets_and_cells_are_seen(watch: Callable[..., Any]) -> None:
    items: list[Any] = [1, object()]
    members, cell = {"a", 2}, types.CellType(1.5)
    watched = over(watch, lists=[(items, tuple(items))], collections=[(members, set(members))], cells=[(cell, 1.5)])
    items[0] = int("1")
    members.add("a")
    cell.cell_contents = float("1.5")
    assert watched.holds()
    items.append(3)
    assert watched.changed() == ("list", 0)
    items.pop()
    members.add("b")
    assert watched.changed() == ("collection", 0)
    members.remove("b")
    cell.cell_contents = 2
    assert watched.changed() == ("cell", 0)


@each_watch
def test_slots_are_seen(watch: Callable[..., Any]) -> None:
    class Slotted:
        __slots__ = ("level",)

    slotted = Slotted()
    slotted.level = 1.5  # type: ignore[attr-defined]
    descriptor = Slotted.__dict__["level"]
    watched = over(watch, slots=[(slotted, (descriptor, 1.5))])
    slotted.level = float("1.5")  # type: ignore[attr-defined]
    assert watched.holds()
    del slotted.level  # type: ignore[attr-defined]
    assert not watched.holds()
    slotted.level = 2  # type: ignore[attr-defined]
    assert watched.changed() == ("slot", 0)


def test_both_watches_agree_on_random_writes() -> None:
    chance = random.Random(5)
    for _ in range(300):
        things = [Thing() for _ in range(chance.randint(1, 90))]
        dicts = [(thing.__dict__, ("scale", "shape", "x") if chance.random() < 0.9 else None) for thing in things]
        watches = [over(watch, dicts=dicts) for watch in WATCHES]
        for _ in range(chance.randint(1, 120)):
            name = chance.choice(["scale", "shape", "x", "y"])
            thing = chance.choice(things)
            if chance.random() < 0.2:
                thing.__dict__.pop(name, None)
            else:
                setattr(thing, name, chance.choice([2.0, 2, (1, "a", 2.5), None]))
        whole = {number for number, (_, keys) in enumerate(dicts) if keys is None}
        found = [each.changed() for each in watches]
        if found[0] is None or found[0][1] not in whole:  # of a whole dictionary the one in C sees writes, not contents
            assert found[0] == found[1]


@each_watch
def test_a_watch_in_a_cycle_is_collected(watch: Callable[..., Any]) -> None:
    thing = Thing()
    thing.watch = over(watch, dicts=[(thing.__dict__, ("scale",))], lists=[([thing], (thing,))])  # type: ignore[attr-defined]
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None


def test_what_is_no_container_is_refused() -> None:
    watch = watch_class()
    for given in (
        {"dicts": [1]},
        {"dicts": [({}, [1])]},
        {"dicts": [({}, (object(),))]},
        {"lists": [((), ())]},
        {"cells": [(1, 2)]},
        {"slots": [(1, (2, 3))]},
    ):
        with pytest.raises(TypeError, match="a Watch takes"):
            over(watch, **given)
