"""Leaves out checks of a call that others imply: what a class defines is evidence, and what a path passes is there."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection
from typing import Any

import torch

from gearcache.guards.access import Access, Walker
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.members import is_immutable
from gearcache.interrupts import raise_interrupt

#: What a class may define so that no object of it lacks the name: a lookup runs no code that could fail.
_ALWAYS_FOUND = (types.FunctionType, classmethod, staticmethod)


def without_implied(
    checks: list[Check],
    tensors: Collection[Access],
    instance: str,
    walker: Walker,
    compares: Callable[[type, str], bool],
) -> list[Check]:
    """Return the checks without those that an argument has an attribute, where that follows from others.

    Each layer of a key-value cache has a dozen of them, which every call would pay for. It follows from the exact class
    of the object if evidence `compares` what the class defines by that name, or from a check behind that attribute.
    `tensors`: the inputs of the graph, whose class the graph compares.
    """
    types_checked = {check.access for check in checks if check.kind == "type"} | set(tensors)

    def is_of_class(check: Check) -> bool:
        if check.access not in types_checked:
            return False
        try:
            cls = type(walker.resolve(check.access))
        except Exception as error:
            raise_interrupt(error)
            return False
        return _always_has(cls, check.expected) and compares(cls, check.expected)

    kept = [check for check in checks if not (_is_asked(check, instance) and is_of_class(check))]
    # The class of an input is compared after these checks, in the graph: that check passes nothing here.
    followed = [check.access for check in kept if not (check.kind == "type" and check.access in tensors)]
    passed = {path for access in followed if is_of_call(access, instance) for path in access.prefixes()}
    return [
        check
        for check in kept
        if not (_is_asked(check, instance) and check.access.then("attr", check.expected) in passed)
    ]


def _is_asked(check: Check, instance: str) -> bool:
    return check.kind == "has_attr" and type(check.expected) is str and is_of_call(check.access, instance)


def is_of_call(access: Access, instance: str) -> bool:
    """Whether every call resolves a path: one from an argument that does not go on in its class."""
    is_argument = access.root[0] == "argument" and access.root[1] != instance
    return is_argument and all(step != "type" for step, _ in access.steps)


def _always_has(cls: type, name: str) -> bool:
    """Whether each object of a class has an attribute, because of what the class defines."""
    lookup: Any = cls.__getattribute__
    if lookup is not object.__getattribute__:
        return False
    for base in cls.__mro__:
        if name in base.__dict__:
            value = base.__dict__[name]
            # What C code of a tensor reads depends on what is compared of each tensor.
            is_of_torch = issubclass(cls, torch.Tensor) and is_immutable(base)
            return is_of_torch or isinstance(value, _ALWAYS_FOUND) or not hasattr(type(value), "__get__")
    return False
