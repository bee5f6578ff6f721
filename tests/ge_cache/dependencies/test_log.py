"""The log of a trace: each kind that is noted is read, and each that is read is noted."""

from __future__ import annotations

import ast

from gearcache.ge_cache.dependencies.fact_checks import FactChecks
from gearcache.ge_cache.dependencies.log import TraceLog
from tests.support.source_tree import ROOT

READ_BY = {"of", "distinct", "given"}


def kinds_given_to(methods: set[str]) -> set[str]:
    """Return the texts that are the first argument of calls of some methods in `ge_cache/`."""
    calls = [
        node
        for file in (ROOT / "ge_cache").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods
    ]
    firsts = [call.args[0] for call in calls if call.args]
    return {first.value for first in firsts if isinstance(first, ast.Constant) and isinstance(first.value, str)}


def test_each_kind_is_noted_and_read() -> None:
    noted = kinds_given_to({"note"}) | {"function"}  # by `note_function`
    read = kinds_given_to(READ_BY) | set(FactChecks.MAKERS)
    assert sorted(noted - read) == [], "a probe notes what nobody reads: no check comes of it"
    assert sorted(read - noted) == [], "nobody notes what is read here"
    assert len(noted) > 20


def test_an_object_of_a_user_is_neither_hashed_nor_compared() -> None:
    class Unequal:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise AssertionError

    log = TraceLog("Net.decode")
    log.note("tracked", None, Unequal(), False)
    log.note("tracked", None, Unequal(), False)
    assert len(log.of("tracked")) == 2
