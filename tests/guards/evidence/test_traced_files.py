"""Of a source file that a trace went through, the traced functions count, and nothing else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from gearcache.guards.evidence.traced_files import changed_source, record_sources

NAME = "traced_file_of_a_test"
TEXT = """
def scaled(x):
    return x * 2


def unrelated(x):
    return x
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with a file of its own."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / f"{NAME}.py"
    file.write_text(TEXT)
    specification = importlib.util.spec_from_file_location(NAME, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, NAME, module)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        pytest.param("x * 2", "x * 3", "was changed", id="code"),
        pytest.param("def scaled", "def other", "is gone", id="name"),
        pytest.param("def scaled(x):", "def scaled(x:", "is gone", id="syntax"),
    ],
)
def test_an_edit_of_a_traced_function_is_named(module: Any, old: str, new: str, state: str) -> None:
    sources = record_sources([module.scaled.__code__])
    assert changed_source(sources) is None
    Path(module.__file__).write_text(TEXT.replace(old, new))
    reason = changed_source(sources)
    assert reason is not None
    assert (reason.kind, reason.subject, reason.file) == ("source", "scaled", module.__file__)
    assert f"`scaled` in `{module.__file__}`" in reason.text
    assert reason.text.endswith(state)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("    return x\n", "    return -x\n", id="another function"),
        pytest.param("def scaled", "# Doubles a number.\ndef scaled", id="a comment"),
    ],
)
def test_an_edit_elsewhere_changes_nothing(module: Any, old: str, new: str) -> None:
    sources = record_sources([module.scaled.__code__])
    Path(module.__file__).write_text(TEXT.replace(old, new))
    assert changed_source(sources) is None


def test_a_file_that_is_gone_is_a_change(module: Any) -> None:
    sources = record_sources([module.scaled.__code__])
    Path(module.__file__).unlink()
    assert changed_source(sources) is not None


def test_a_module_whose_file_has_another_name_than_its_code_is_found(module: Any, tmp_path: Path) -> None:
    other = tmp_path / "other_name.py"
    other.symlink_to(module.__file__)
    module.__file__ = str(other)
    sources = record_sources([module.scaled.__code__])
    assert [name for name, *_ in sources["files"]] == [NAME]
    other.write_text(TEXT.replace("x * 2", "x * 3"))
    reason = changed_source(sources)
    assert reason is not None
    assert reason.subject == "scaled"
