"""Of a source file that a trace went through, the traced functions count, and nothing else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from gearcache.guards.evidence.traced_files import changed_source, record_sources
from tests.support.relaunch import run_python

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


#: Functions that `exec` made are found by their class, also where one reads like another, or the collector is frozen.
GENERATED = """
import dataclasses, functools, gc, json, sys, types

class Wrapping(type):
    '''Puts a function around each `__init__`, as the metaclass of transformers' outputs does.'''

    def __setattr__(cls, name, value):
        inside = value
        @functools.wraps(inside)
        def init(self, *arguments, **keywords):
            inside(self, *arguments, **keywords)
        super().__setattr__(name, init if name == "__init__" else value)

@dataclasses.dataclass
class Plain:
    x: int = 0

@dataclasses.dataclass
class Wrapped(metaclass=Wrapping):
    x: int = 0

from gearcache.guards.evidence.traced_files import changed_source, record_sources
gc.freeze()
recorded = record_sources([Plain.__init__.__code__, Wrapped.__init__.__wrapped__.__code__])
names = [name for name, _ in recorded["functions"]]
before = changed_source(recorded)
Wrapped = dataclasses.make_dataclass("Wrapped", [("y", int, 1)])
print(json.dumps([names, before is None, changed_source(recorded).text]))
"""


def test_generated_functions_are_recorded_by_the_name_of_their_class() -> None:
    names, is_current, text = run_python(GENERATED)
    assert (names, is_current) == (["__main__:Plain.__init__", "__main__:Wrapped.__init__.__wrapped__"], True)
    assert "`__main__:Wrapped.__init__.__wrapped__` is gone" in text
