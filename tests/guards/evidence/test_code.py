"""Digests of code: what it does, not where it stands."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest
import torch

from gearcache.guards.evidence.code import (
    code_digest,
    code_objects,
    versioned_place,
)

BASE = "def f(x, y=1):\n    return x + 2\n"


def _digest(source: str) -> str:
    module = compile(source, "some file", "exec")
    return code_digest(next(code for code in code_objects(module) if code.co_name == "f"))


@pytest.mark.parametrize(
    "source",
    [
        BASE.replace("+ 2", "+ 3"),
        BASE.replace("+ 2", "+ 2.0"),
        BASE.replace("+ 2", "- 2"),
        BASE.replace("x + 2", "x + y"),
        BASE.replace("x, y", "x, *, y"),
        BASE.replace("x, y=1", "y, x=1"),
        BASE.replace("return x + 2", "return x + GLOBAL"),
        BASE.replace("return x + 2", "return x in {1, 2}"),
    ],
)
def test_anything_else_changes_the_digest(source: str) -> None:
    assert _digest(source) != _digest(BASE)


@pytest.mark.parametrize(
    ("constant", "other"),
    [("1", "True"), ("0.0", "-0.0"), ("'a'", "b'a'"), ("(1, 2)", "(1, 2.0)"), ("x in {1, 2}", "x in (1, 2)")],
)
def test_equal_constants_of_other_types_change_the_digest(constant: str, other: str) -> None:
    assert _digest(BASE.replace("x + 2", constant)) != _digest(BASE.replace("x + 2", other))


def test_the_order_of_a_set_does_not_change_the_digest() -> None:
    """`{8, 0}` and `{0, 8}` are one constant in two orders."""
    assert _digest(BASE.replace("x + 2", "x in {8, 0}")) == _digest(BASE.replace("x + 2", "x in {0, 8}"))


def test_what_has_its_version_in_the_key_is_named_by_its_place() -> None:
    library = Path(os.path.realpath(sysconfig.get_paths()["stdlib"]))
    assert versioned_place(str(library / "json" / "decoder.py")) == str(Path("python", "json", "decoder.py"))
    assert versioned_place(torch.nn.Linear.forward.__code__.co_filename) == "torch/nn/modules/linear.py"
    assert versioned_place(pytest.__file__) is None
    assert versioned_place(__file__) is None
