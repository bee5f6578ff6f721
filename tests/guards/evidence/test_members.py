"""What counts of a class: special names and names that the traced code mentions; nothing else."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from gearcache.guards.access import Access, Scope, Walker
from gearcache.guards.evidence.checks import observe, told_apart
from gearcache.guards.evidence.members import MADE, MET, changed_class, classes_plain
from gearcache.guards.evidence.tree import evidence_failure, evidence_tree

PATH = Access(("argument", "cls"))


class Base:
    factor = 2.0

    def scale(self, by: float = 2.0) -> float:
        return by


def made() -> type:
    return type("Made", (Base,), {"__init__": lambda self, start=1: None, "level": 1, "table": {}})


def tripled(self: Any, by: float = 3.0) -> float:
    return by


#: What is done to a class, and whether it counts where its objects are met, and where they are made.
CHANGES: dict[str, tuple[Callable[[Any], None], bool, bool]] = {
    "a special method": (lambda cls: setattr(cls, "__bool__", lambda self: False), True, True),
    "a mentioned name nearer than its base": (lambda cls: setattr(cls, "scale", tripled), True, True),
    "a property for a value": (lambda cls: setattr(cls, "level", property(lambda self: 1)), True, True),
    "another base class": (lambda cls: setattr(cls, "__bases__", (type("Base", (Base,), {}),)), True, True),
    "a value, which a guard tells of where it is read": (lambda cls: setattr(cls, "level", 2), False, True),
    "a default of what makes it": (lambda cls: setattr(cls.__init__, "__defaults__", (2,)), False, True),
    "an unmentioned method": (lambda cls: setattr(cls, "other", tripled), False, False),
    "what a dictionary holds": (lambda cls: cls.table.update(a=1), False, False),
    "a note of a library": (lambda cls: setattr(cls, "__noted__", 1), False, False),
}


@pytest.mark.parametrize("is_made", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_class_counts_where_a_trace_may_have_seen_it(name: str, is_made: bool) -> None:
    cls = made()
    plain = classes_plain({PATH: (cls, is_made)}, {"scale", "level", "factor", "table"})
    walker = Walker(Scope({"cls": cls}, {}))
    assert changed_class(plain, walker) is None
    change, *counts = CHANGES[name]
    change(cls)
    assert (changed_class(plain, walker) is not None) == counts[is_made]


def test_two_classes_of_one_name_are_told_apart() -> None:
    first, second = made(), made()
    paths = [Access(("argument", name)) for name in ("a", "b", "c")]
    arguments = {"a": first(), "b": second(), "c": first()}
    checks = [observe("type", path, arguments[path.root[1]]) for path in paths]
    tree = evidence_tree(told_apart(checks, Walker(Scope(arguments, {}))))
    assert evidence_failure(tree, Scope(arguments, {})) is None
    for other in ({"b": first()}, {"c": second()}, {"a": second()}):
        assert evidence_failure(tree, Scope(arguments | other, {})) is not None


def test_every_name_that_the_interpreter_looks_up_by_itself_is_known() -> None:
    met = {
        name
        for cls in (object, int, float, list, dict, set, tuple, str, bytes, type, property, types.GeneratorType)
        for name, value in vars(cls).items()
        if isinstance(value, types.WrapperDescriptorType)
    }
    assert met - MET - MADE == set()
