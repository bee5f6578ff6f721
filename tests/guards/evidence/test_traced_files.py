"""A source file that a trace went through without a path counts as a whole."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from gearcache.guards.evidence.traced_files import UnnamedCode, changed_source, record_sources

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


def test_an_edit_of_a_file_is_named(module: Any) -> None:
    sources = record_sources([module.scaled.__code__])
    assert changed_source(sources) is None
    Path(module.__file__).write_text(TEXT.replace("return x\n", "return x + 1\n"))
    reason = changed_source(sources)
    assert reason is not None
    assert (reason.kind, reason.subject, reason.file) == ("source", NAME, module.__file__)
    assert module.__file__ in reason.text


def test_code_that_its_file_no_longer_holds_is_not_recorded(module: Any) -> None:
    Path(module.__file__).write_text(TEXT.replace("x * 2", "x * 3"))
    with pytest.raises(UnnamedCode, match="`scaled`"):
        record_sources([module.scaled.__code__])


def test_code_without_a_file_is_not_recorded() -> None:
    made: dict[str, Any] = {}
    exec("def scaled(x):\n    return x * 2", made)  # noqa: S102 - as libraries do
    with pytest.raises(UnnamedCode, match="`scaled` from `<string>`"):
        record_sources([made["scaled"].__code__])
