"""Each kind of check holds for what it was made of and fails for what differs, as evidence and in the dispatch."""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import Any

import pytest
import torch
from msgspec import msgpack

from gearcache.guards.access import Access, Scope, Walker
from gearcache.guards.dispatch.check_code import CheckWriter
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.kinds import KINDS
from gearcache.guards.evidence.relations import RELATIONS
from gearcache.guards.evidence.tree import evidence_failure, evidence_tree

VALUE = Access(("argument", "value"))


class Base:
    pass


class Sub(Base):
    def method(self) -> int:
        return 1

    @staticmethod
    def fixed() -> int:
        return 2


class Overriding(Sub):
    def method(self) -> int:
        return 3


def double(x: float) -> float:
    return x * 2


def triple(x: float) -> float:
    return x * 3


def calling(inner: Any) -> Any:
    def outer(x: int) -> Any:
        return inner(x)

    return outer


def shifted_by(shift: int) -> Any:
    def shifted(x: int, factor: int = shift) -> int:
        return x * factor

    return shifted


def named_double(x: float) -> float:
    return x * 20


named_double.__name__, named_double.__qualname__ = "double", "double"


def moved(key: str) -> OrderedDict[str, int]:
    """Return a dictionary of two keys, one of which was moved to the begin."""
    made = OrderedDict(a=1, b=2)
    made.move_to_end(key, last=False)
    return made


#: Process groups that nobody communicates in, and their ranks.
GROUPS: dict[Any, list[int]] = {}


def group(name: str, ranks: list[int]) -> Any:
    made = type("Group", (torch.distributed.ProcessGroup,), {"group_name": name})(0, len(ranks))
    GROUPS[made] = ranks
    return made


@pytest.fixture(autouse=True)
def groups_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    known = torch.distributed.distributed_c10d._world.pg_group_ranks  # emptied whenever a process leaves its job
    for made, ranks in GROUPS.items():
        monkeypatch.setitem(known, made, {rank: number for number, rank in enumerate(ranks)})


#: kind -> (value, argument, values that differ)
CASES: dict[str, tuple[Any, Any, list[Any]]] = {
    "type": ([1], None, [(1,), OrderedDict()]),
    "constant": (1, None, [True, 1.0, "1", None, 2]),
    "length": ([1, 2], None, [[1], (1, 2, 3), 5]),
    "keys": ({"a": 1, "b": 2}, None, [{"b": 2, "a": 1}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, 5]),
    "has_attr": (types.SimpleNamespace(a=1), "a", [types.SimpleNamespace(b=1), None]),
    "no_attr": (types.SimpleNamespace(b=1), "a", [types.SimpleNamespace(a=1)]),
    "not_own": (types.SimpleNamespace(b=1), "a", [types.SimpleNamespace(a=1)]),
    "contains": ({"a", 1}, "a", [{1}, set()]),
    "lacks": ({1}, "a", [{"a"}, {1, "a"}]),
    "not_none": (0, None, [None]),
    "name": (len, None, [max, int, types]),
    "function": (double, None, [triple, named_double, len, 5]),
    "reached": (calling(double), None, [calling(triple), calling(5), double, object()]),
    "empty": ({}, None, [{1: 2}]),
    "process_group": (group("1", [0, 1]), None, [group("1", [0, 2]), group("2", [0, 1]), "1", None]),
    "bases": (Sub, None, [Base, Overriding, 5]),
    "tensor": (
        torch.ones(2, 3),
        ["float32", "cpu", "torch.strided", 2],
        [torch.ones(2), torch.ones(2, 3).int(), None, [1]],
    ),
    "order": ((1, 2), None, [(2, 1), (1,), 5]),
    "positions": (moved("b"), None, [moved("a"), OrderedDict(b=2, a=1), OrderedDict(a=1), {"a": 1, "b": 2}, 5]),
    "definition": (shifted_by(1), None, [shifted_by(2), calling(double), double, 5]),
}


def _failure(check: Check, value: Any) -> Any:
    return check.failure(Walker(Scope({"value": value}, {})))


def _is_dispatched(check: Check, value: Any, other: Any) -> bool:
    """Whether the dispatch that was written for one value takes a call with another."""
    writer = CheckWriter(Scope({"value": value}, {}), "self", ["self", "value"])
    source = writer.check(check, KINDS[check.kind].compared(value))
    try:
        return bool(eval(source, writer.namespace, {"value": other}))  # noqa: S307 - as the dispatch does
    except Exception:
        return False


def test_every_kind_is_tried() -> None:
    assert set(CASES) == KINDS.keys() - {kind.name for kind in RELATIONS} - {"classes"}


@pytest.mark.parametrize("kind", CASES)
def test_a_check_holds_for_its_value_and_for_no_other(kind: str) -> None:
    value, argument, others = CASES[kind]
    check = observe(kind, VALUE, value, argument)
    again = Check.from_plain(msgpack.decode(msgpack.encode(check.to_plain())))
    assert again == check
    assert _failure(again, value) is None
    assert _is_dispatched(again, value, value)
    tree = msgpack.decode(msgpack.encode(evidence_tree([check])))
    assert evidence_failure(tree, Scope({"value": value}, {})) is None
    for other in others:
        failure = _failure(again, other)
        assert failure is not None, other
        assert "`value`" in str(failure)
        assert not _is_dispatched(again, value, other), other
        assert evidence_failure(tree, Scope({"value": other}, {})) is not None, other


def test_what_holds_something_is_no_more_taken_when_it_is_empty() -> None:
    check = observe("empty", VALUE, {1: 2})
    assert (_failure(check, {3: 4}), _is_dispatched(check, {1: 2}, {3: 4})) == (None, True)
    assert _failure(check, {}) is not None
    assert not _is_dispatched(check, {1: 2}, {})


def test_a_check_of_something_that_is_gone_fails_and_says_so() -> None:
    check = observe("constant", VALUE.then("attr", "scale"), 2.0)
    failure = _failure(check, types.SimpleNamespace())
    assert "not there" in str(failure)
    assert "value.scale" in str(failure)


def test_two_paths_to_one_object_are_the_same_until_one_changes() -> None:
    shared = [1]
    check = Check("same", VALUE.then("attr", "a"), VALUE.then("attr", "b").to_plain())
    assert _failure(check, types.SimpleNamespace(a=shared, b=shared)) is None
    assert _failure(check, types.SimpleNamespace(a=[1], b=[1])) is not None
    assert _failure(check, types.SimpleNamespace(a=[1])) is not None


def test_objects_are_distinct_until_two_of_them_are_one() -> None:
    paths = [VALUE.then("item", index) for index in range(4)]
    written = Check("distinct", paths[0], [1, [path.to_plain() for path in paths[1:]]])
    a, b, c, d = [1], [1], [1], [1]
    tree = evidence_tree([written])
    for objects, holds_now in (
        ([a, b, c, d], True),
        ([a, b, c, c], True),
        ([a, a, c, d], False),
        ([a, b, c, b], False),
    ):
        assert (_failure(written, objects) is None) == holds_now, "what nobody writes may be one object"
        assert (evidence_failure(tree, Scope({"value": objects}, {})) is None) == holds_now


def test_a_check_of_ints_names_paths_and_fails_where_a_divisor_is_0() -> None:
    machine = types.SimpleNamespace(position=0)
    scope = Scope({"self": machine}, {}, {})
    path = Access(("argument", "self")).then("attr", "position")
    check = Check("numbers", path, [["(7 // n0) > 2", "n0 < 3"], [["n0", path.to_plain()]]])
    for value, holds in ((1, True), (2, True), (3, False), (0, False), (True, False), (1.0, False)):
        machine.position = value
        failure = check.failure(Walker(scope))
        assert (failure is None) is holds
        if value == 3:
            assert "(7 // self.position) > 2 and self.position < 3 does not hold" in str(failure)
    assert "`self.position` was an int, is now a float" in str(failure)
