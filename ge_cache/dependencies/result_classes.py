"""Checks of named tuples that a frame makes: the bytecode contains their class, and its definition is evidence."""

from __future__ import annotations

import types

from gearcache.ge_cache.dependencies.paths import by_name
from gearcache.guards.dispatch.frame import named_tuple_of
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.code import code_objects, function_plain
from gearcache.guards.evidence.constants import to_plain


def result_class_checks(code: types.CodeType) -> list[Check]:
    """Return checks that the classes of the named tuples in a frame still have the same fields and constructor."""
    checks = []
    for code_object in code_objects(code):
        for constant in code_object.co_consts:
            cls = named_tuple_of(constant)
            if cls is None:
                continue
            access = by_name(cls)
            checks.append(Check("constant", access.then("attr", "_fields"), to_plain(cls._fields)))  # type: ignore[attr-defined]
            checks.append(Check("function", access.then("attr", "_make"), function_plain(constant)))
    return checks
