"""What a hook of imports does, alone and with another one for the same module."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from gearcache.import_hooks import ImportHook

NAME = "gearcache_hooked"


def hook(heard: list[str], word: str) -> ImportHook:
    def execute(module: types.ModuleType, execute: Callable[[types.ModuleType], None]) -> None:
        heard.append(f"{word} begins")
        execute(module)
        heard.append(f"{word} ends, value is {vars(module)['value']}")

    return ImportHook(NAME.__eq__, execute)


@pytest.fixture
def finders(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    found = [*sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", found)
    return found


def test_two_hooks_for_one_module_both_execute_it_and_again_at_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finders: list[object]
) -> None:
    tmp_path.joinpath(f"{NAME}.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    heard: list[str] = []
    finders[:0] = [hook(heard, "a"), hook(heard, "b")]
    expected = ["a begins", "b begins", "b ends, value is 3", "a ends, value is 3"]
    module = importlib.import_module(NAME)
    assert heard == expected
    importlib.reload(module)
    assert heard == expected * 2
    del finders[:2]
    importlib.reload(module)
    assert heard == expected * 2
    del sys.modules[NAME]


def test_a_module_that_is_not_there_is_not_there_with_a_hook_either(finders: list[object]) -> None:
    finders.insert(0, hook([], "a"))
    with pytest.raises(ModuleNotFoundError, match=NAME):
        importlib.import_module(NAME)
