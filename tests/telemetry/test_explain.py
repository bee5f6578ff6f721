"""Reasons of misses: as objects, as one log line each, and as text that tells a user what to do."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.support.scenarios import strict_config

_MODULE = """
import torch
def helper(x):
    return x {operator} 2
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.level = {level}
    def run(self, x, flag=True):
        return helper(x) * self.level if flag else x
"""


def _model(folder: Path, name: str, **changes: Any) -> Any:
    """Write and import a module anew, as another process would find it."""
    text = _MODULE.format(**{"operator": "*", "level": 3} | changes)
    (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    sys.modules.pop(name, None)
    return importlib.import_module(name).Model()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def _cached(model: Any, **options: Any) -> Any:
    return gearcache.cache_compile(model.run, config=strict_config(**options))


def test_an_edited_callee_is_told_with_file_line_and_both_digests(folder: Path, cache_dir: Path) -> None:
    _cached(_model(folder, "edited"))(torch.ones(2))
    again = _cached(_model(folder, "edited", operator="+"))
    assert torch.equal(again(torch.ones(2)), torch.full((2,), 9.0))
    (reason,) = again.stats.reasons
    assert (reason.kind, reason.subject) == ("source", "helper")
    assert (reason.file, reason.line) == (str(folder / "edited.py"), 3)
    assert reason.stored != reason.present
    assert "compile again after each deployment" in again.explain()


def test_a_changed_value_is_told_with_both_values(folder: Path, cache_dir: Path) -> None:
    _cached(_model(folder, "changed"))(torch.ones(2))
    again = _cached(_model(folder, "changed", level=4))
    again(torch.ones(2))
    reason = again.stats.reasons[0]
    assert (reason.kind, reason.subject, reason.stored, reason.present) == ("evidence", "self.level", "3", "4")
    assert "self.level: stored 3, now 4" in again.explain()
    assert "what to do: the graph was built with the stored value" in again.explain()


def test_an_option_is_told_as_a_component_of_the_key(folder: Path, cache_dir: Path) -> None:
    _cached(_model(folder, "optioned"))(torch.ones(2))
    again = _cached(_model(folder, "optioned"), options={"max_autotune": True})
    again(torch.ones(2))
    (reason,) = again.stats.reasons
    assert reason.kind == "key"
    assert reason.subject.startswith("options")
    assert "the nearest stored entry differs there" in again.explain()


def test_another_argument_and_another_size_have_reasons(folder: Path, cache_dir: Path) -> None:
    cached = gearcache.cache_compile(
        _model(folder, "called").run, config=strict_config(on_miss="compile"), gears={"x": {0: [2]}}
    )
    cached(torch.ones(2))
    cached(torch.ones(2), False)
    cached(torch.ones(3))
    kinds = [reason.kind for reason in cached.stats.reasons]
    assert kinds == ["absent", "arguments", "gear"]
    flag, size = cached.stats.reasons[1:]
    assert flag.subject == "flag"
    assert (size.subject, size.present, size.stored) == ("x", "of shape (3,)", "shape (2,)")
    text = cached.explain()
    for advice in ("`.warm(...)`", "pass floats as tensors", "name sizes in `gears=`"):
        assert advice in text
