"""The watch: what was written since, told apart from what does not matter; in C and in Python alike."""

from __future__ import annotations

import abc
import collections
import contextlib
import gc
import os
import random
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gearcache.guards.watch.python_watch import PythonWatch
from gearcache.guards.watch.watch import watch_class

WATCHES = [watch_class(), PythonWatch]
each_watch = pytest.mark.parametrize("watch", WATCHES, ids=["installed", "python"])


class Thing:
    level = 1

    def __init__(self) -> None:
        self.scale = 2.0
        self.shape = (1, "a", 2.5)


def over(watch: Callable[..., Any], **given: Any) -> Any:
    """Return a watch over dictionaries with their keys, slots with their descriptors, and others by kind."""
    made = watch()
    for holder, keys in given.get("dicts", ()):
        made.add_keys(holder, keys)
    for holder, descriptor in given.get("slots", ()):
        made.add("slot", holder, descriptor)
    kinds = {"objects": "object", "tensors": "tensor", "classes": "class", "functions": "function", "lists": "list"}
    for name, kind in (kinds | {"cells": "cell", "collections": "collection", "questions": "question"}).items():
        for value in given.get(name, ()):
            made.add(kind, value)
    return made


class Registry(dict[str, int]):
    """As in transformers: its `get` takes no default."""

    def get(self, key: str) -> int:  # type: ignore[override]
        raise AssertionError(key)

    items = values = get  # type: ignore[assignment]


@each_watch
@pytest.mark.parametrize(
    "move",
    [
        lambda tensor: tensor.share_memory_(),
        lambda tensor: setattr(tensor, "data", tensor.data.clone()),
        lambda tensor: torch.utils.swap_tensors(tensor, torch.nn.Parameter(torch.ones(6, 6), requires_grad=False)),
        lambda tensor: tensor.t_(),
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
    thing.zero = 0.0  # type: ignore[attr-defined]
    watched = over(watch, dicts=[(thing.__dict__, ("scale", "shape", "absent", "zero"))])
    thing.other = 1  # type: ignore[attr-defined]
    thing.scale = float("2.0")
    thing.shape = (int("1"), "a", float("2.5"))
    assert watched.holds()
    thing.scale = 2  # type: ignore[assignment]
    assert watched.changed() == ("dictionary", 0)
    thing.scale = 2.0
    thing.zero = -0.0  # type: ignore[attr-defined]
    assert not watched.holds()
    thing.zero = 0.0  # type: ignore[attr-defined]
    assert watched.holds()
    thing.absent = None  # type: ignore[attr-defined]
    assert not watched.holds()
    del thing.absent  # type: ignore[attr-defined]
    assert watched.holds()
    del thing.scale
    assert not watched.holds()


@each_watch
def test_a_dictionary_as_a_whole_counts_with_every_key(watch: Callable[..., Any]) -> None:
    for held in ({1: 2}, OrderedDict(a=1), Registry(a=1)):
        watched = over(watch, dicts=[(held, None)])
        assert watched.holds()
        held["more"] = 3  # type: ignore[index]
        assert not watched.holds()


@each_watch
def test_a_dictionary_with_methods_of_its_own_is_read_past_them(watch: Callable[..., Any]) -> None:
    held = Registry(a=1)
    watched = over(watch, dicts=[(held, ("a", "absent"))])
    held["more"] = 3
    assert watched.holds()
    held["absent"] = 3
    assert not watched.holds()


@each_watch
def test_lists_sets_and_cells_are_seen(watch: Callable[..., Any]) -> None:
    items: list[Any] = [1, object()]
    members, cell = {"a", 2}, types.CellType(1.5)
    watched = over(watch, lists=[items], collections=[members], cells=[cell])
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
def test_the_names_of_a_class_are_watched_and_no_others(watch: Callable[..., Any]) -> None:
    made: Any = type("Made", (Thing,), {"level": 1, "table": {}})
    watched = over(watch, dicts=[(made, frozenset({"level", "scale", "__bool__"}))])
    made.other = 1
    made.level = int("1")
    made.table["a"] = 1
    del made.other
    assert watched.holds()
    for change, undo in (
        (lambda: setattr(made, "level", 2), lambda: setattr(made, "level", 1)),
        (lambda: setattr(made, "__bool__", len), lambda: delattr(made, "__bool__")),
        (lambda: delattr(made, "level"), lambda: setattr(made, "level", 1)),
    ):
        change()
        assert watched.changed() == ("dictionary", 0)
        undo()
        assert watched.holds()


@each_watch
def test_bases_code_defaults_and_registrations_are_watched(watch: Callable[..., Any]) -> None:
    def function(x: int, y: int = 1, *, z: int = 2) -> int:
        return x + y + z

    def other(x: int, y: int = 1, *, z: int = 2) -> int:
        return x * y * z

    class Base(Thing):
        pass

    class Sub(Base):
        pass

    class Abstract(abc.ABC):  # noqa: B024
        pass

    def made() -> Any:
        return over(watch, classes=[Thing, Sub], functions=[function], questions=[abc.get_cache_token])

    changes: list[tuple[Callable[[], Any], str]] = [
        (lambda: setattr(Base, "__bases__", (type("Thing", (Thing,), {}),)), "class"),
        (lambda: setattr(function, "__defaults__", (3,)), "function"),
        (lambda: setattr(function, "__kwdefaults__", {"z": 3}), "function"),
        (lambda: setattr(function, "__code__", other.__code__), "function"),
        (lambda: Abstract.register(Sub), "question"),
    ]
    for change, kind in changes:
        watched = made()
        assert watched.holds()
        change()
        assert watched.changed()[0] == kind
        assert not watched.holds()


@each_watch
def test_the_class_and_the_dictionary_of_an_object_are_watched(watch: Callable[..., Any]) -> None:
    class Other(Thing):
        pass

    for thing in (Thing(), Registry(a=1)):
        watched = over(watch, objects=[object(), thing])
        vars(thing)["other"] = 1
        assert watched.holds()
        attributes = thing.__dict__
        thing.__dict__ = dict(attributes)
        assert watched.changed() == ("object", 1)
        thing.__dict__ = attributes
        assert watched.holds()
    made = Thing()
    watched = over(watch, objects=[made])
    made.__class__ = Other
    assert watched.changed() == ("object", 0)


@each_watch
def test_keys_are_watched_from_when_they_are_added(watch: Callable[..., Any]) -> None:
    thing, watched = Thing(), watch()
    number = watched.add_keys(thing.__dict__, ["scale"])
    thing.shape = (2,)
    assert watched.add_keys(thing.__dict__, ["shape", "absent"], number) == number
    assert watched.holds()
    thing.shape = (3,)
    assert watched.changed() == ("dictionary", number)
    thing.shape, thing.scale = (2,), 3.0
    assert watched.changed() == ("dictionary", number)
    thing.scale = 2.0
    assert watched.holds()
    watched.add_keys(thing.__dict__, None, number)
    thing.other = 1  # type: ignore[attr-defined]
    assert watched.changed() == ("dictionary", number)


@each_watch
def test_a_copy_expects_what_the_other_has_noted(watch: Callable[..., Any]) -> None:
    def function(x: int = 1) -> int:
        return x

    class Slotted:
        __slots__ = ("level",)

    thing, slotted, whole = Thing(), Slotted(), {"a": 1}
    made = type("Made", (Thing,), {})
    tensors = [torch.zeros(2, 3, 4), torch.zeros(2), torch.zeros(1, 2, 3)]
    cell, items, members = types.CellType(1), [1], {1}
    given: dict[str, Any] = {
        "dicts": [(thing.__dict__, ("scale", "absent")), (whole, None), (made, frozenset({"level"}))],
        "slots": [(slotted, Slotted.__dict__["level"])],
        "objects": [thing], "tensors": tensors, "classes": [made], "functions": [function], "lists": [items],
        "cells": [cell], "collections": [members], "questions": [abc.get_cache_token],
    }  # fmt: skip
    changes: list[tuple[str, int, Callable[[], Any]]] = [
        ("dictionary", 0, lambda: setattr(thing, "scale", 5.0)),
        ("dictionary", 1, lambda: whole.update(b=2)),
        ("dictionary", 2, lambda: setattr(made, "level", 2)),
        ("slot", 0, lambda: setattr(slotted, "level", 2)),
        ("object", 0, lambda: setattr(thing, "__dict__", {})),
        ("tensor", 2, lambda: setattr(tensors[2], "data", torch.zeros(3, 2, 1))),
        ("class", 0, lambda: setattr(made, "__bases__", (type("Base", (Thing,), {}),))),
        ("function", 0, lambda: setattr(function, "__defaults__", (2,))),
        ("list", 0, lambda: items.append(1)),
        ("cell", 0, lambda: setattr(cell, "cell_contents", 2)),
        ("collection", 0, lambda: members.add(2)),
        ("question", 0, lambda: abc.ABC.register(type("Registered", (), {}))),
    ]
    first = over(watch, **given)
    copies = {}
    for kind, number, _ in changes:
        copies[kind, number] = watch()
        copies[kind, number].copy(first, kind, number)
        assert copies[kind, number].holds()
    for kind, number, change in changes:
        change()
        late = watch()
        late.copy(first, kind, number)  # of a state that is gone by now
        assert copies[kind, number].changed() == late.changed() == (kind, 0)


def test_a_watch_refuses_what_it_cannot_compare() -> None:
    watched = watch_class()()
    for refused in (
        lambda: watched.add("nothing", 1),
        lambda: watched.add("tensor", 1),
        lambda: watched.add("class", 1),
        lambda: watched.add("function", len),
        lambda: watched.add("list", ()),
        lambda: watched.add("cell", 1),
        lambda: watched.add("slot", 1, 1),
        lambda: watched.add("question", 1),
        lambda: watched.add_keys(1, None),
        lambda: watched.add_keys({}, [1.5]),
        lambda: watched.add_keys({}, ["a"], 7),
        lambda: watched.copy(watched, "list", 0),
        lambda: watched.copy(watched, "dictionary", -1),
    ):
        with pytest.raises(TypeError):
            refused()
    assert watched.holds()


@each_watch
def test_a_watch_in_a_cycle_is_collected(watch: Callable[..., Any]) -> None:
    thing = Thing()
    thing.watch = over(watch, dicts=[(thing.__dict__, ("scale",))], lists=[[thing]])  # type: ignore[attr-defined]
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None


@each_watch
def test_equal_items_of_another_kind_and_another_order_are_seen(watch: Callable[..., Any]) -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

    members, zeros, objects = {1}, collections.deque([0.0]), collections.deque([Equal()])
    ordered = OrderedDict(a=1, b=2)
    containers: tuple[Any, ...] = (members, zeros, objects, ordered)
    watched = over(watch, collections=containers)
    assert watched.holds()
    changes: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: (members.clear(), members.add(True)), lambda: (members.clear(), members.add(1))),
        (lambda: zeros.__setitem__(0, -0.0), lambda: zeros.__setitem__(0, 0.0)),
        (lambda: ordered.move_to_end("a"), lambda: ordered.move_to_end("b")),
        (lambda: objects.__setitem__(0, Equal()), lambda: None),
    ]
    for number, (change, undo) in enumerate(changes):
        change()
        assert watched.changed() == ("collection", [0, 1, 3, 2][number])
        undo()
    assert not watched.holds()


class Meddler:
    """A key, item or value whose comparison and whose end run code that asks and changes everything."""

    def __init__(self, number: int, act: Callable[[], None]) -> None:
        self.number, self.act = number, act

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        self.act()
        return self is other

    def __del__(self) -> None:
        self.act()


#: More of them after a change of the C, under `-fsanitize=address,undefined`.
ROUNDS = int(os.environ.get("GEARCACHE_WATCH_ROUNDS", "300"))


def test_what_is_watched_may_change_and_die_at_any_moment() -> None:
    """Also within a question, and while garbage is collected."""
    chance, depth = random.Random(7), 0
    watches: list[Any] = []
    things: list[Any] = []

    def act() -> None:
        nonlocal depth
        if depth > 2:
            return
        depth += 1
        with contextlib.suppress(RuntimeError, LookupError, ValueError):  # what was drawn from is empty by now
            chance.choice([ask, spoil, drop, collect])()
        depth -= 1

    def collect() -> None:
        gc.collect(1)

    def ask() -> None:
        for watched in chance.choices(watches, k=3):
            watched.holds() if chance.random() < 0.5 else watched.changed()

    def drop() -> None:
        if watches:
            watches.pop(chance.randrange(len(watches)))
        if len(things) > 3:
            things.pop(chance.randrange(len(things)))

    def fresh() -> Any:
        return chance.choice(
            [1, 2.5, "a", (1.5, "b", (2,)), None, torch.zeros(2), object(), Meddler(hash("a"), act), watches[-1:]]
        )

    def spoil() -> None:
        held, items, members, cell, slotted, tensor = chance.choice(things)
        name = chance.choice(["a", "b", "c"])
        changes: list[Callable[[], Any]] = [
            lambda: held.update({name: fresh()}),
            lambda: held.pop(name, None),
            held.clear,
            lambda: held.update({Meddler(hash(name), act): fresh()}),
            lambda: items.__setitem__(slice(chance.randrange(len(items)), None), [fresh()] * chance.randrange(9)),
            lambda: members.add(chance.choice([1, Meddler(1, act), "x"])),
            members.clear,
            lambda: setattr(cell, "cell_contents", fresh()),
            lambda: setattr(slotted, "level", fresh()),
            lambda: setattr(tensor, "data", torch.zeros([2] * chance.randrange(8))),
            lambda: tensor.untyped_storage().resize_(chance.choice([0, 8, 4096])),
            lambda: torch.utils.swap_tensors(tensor, torch.nn.Parameter(torch.ones([3] * chance.randrange(8)))),
        ]
        chance.choice(changes)()

    class Slotted:
        __slots__ = ("__dict__", "level")

    def thing() -> Any:
        slotted: Any = Slotted()
        slotted.level = fresh()
        tensor = torch.nn.Parameter(torch.zeros([2] * chance.randrange(8)), requires_grad=False)
        made = (slotted.__dict__, [fresh(), fresh()], {1, Meddler(2, act)}, types.CellType(fresh()), slotted, tensor)
        made[0]["cycle"] = made
        return made

    for _ in range(ROUNDS):
        things.append(thing())
        some = chance.choices(things, k=4)
        held = Slotted.__dict__["level"]
        with contextlib.suppress(RuntimeError, ValueError):  # a set that changed while it was copied, an empty cell
            first = over(
                watch_class(),
                dicts=[(each[0], chance.choice([None, ("a", "b")])) for each in some] + [(Meddler, ("act",))],
                lists=[each[1] for each in some],
                collections=[each[2] for each in some],
                cells=[each[3] for each in some],
                slots=[(each[4], held) for each in some],
                objects=[each[4] for each in some],
                tensors=[each[5] for each in some],
            )
            copied = watch_class()()
            for kind in ("dictionary", "object", "tensor", "list", "collection", "cell", "slot"):
                copied.copy(first, kind, chance.randrange(4))
            watches += [first, copied]
            some[0][0]["watch"] = first
        for _ in range(3):
            act()
        del watches[:-6], things[:-8]
    depth = 9
    assert all(watched.changed() is None or not watched.holds() for watched in watches)
    watches.clear()
    things.clear()
    gc.collect()
