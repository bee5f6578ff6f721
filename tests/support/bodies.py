"""Methods given as the text of their body, and values compared with their types."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config

#: Returns two instances of a class `Net` whose method has a given body.
Nets = Callable[[str], tuple[Any, Any]]


def nets_of(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Nets:
    """Return what puts a body at the end of `text`, which ends with `def method(self, x):`, and makes two `Net()`."""

    def make(body: str) -> tuple[Any, Any]:
        folder.joinpath("constructs.py").write_text(
            text + textwrap.indent(textwrap.dedent(body.strip("\n")), " " * 8) + "\n"
        )
        # Python's cache would take another body of the same size, written within the same second, for this one.
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "constructs", raising=False)
        module: Any = importlib.import_module("constructs")
        monkeypatch.setitem(sys.modules, "constructs", module)
        return module.Net(), module.Net()

    return make


def assert_same(found: Any, expected: Any) -> None:
    """Compare values, types and, of objects, what is in them."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, Tensor):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    elif isinstance(expected, (list, tuple, deque)):
        assert getattr(found, "maxlen", None) == getattr(expected, "maxlen", None)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif hasattr(expected, "__dict__"):
        assert_same(vars(found), vars(expected))
    elif hasattr(expected, "__slots__"):
        for name in type(expected).__slots__:
            assert_same(getattr(found, name), getattr(expected, name))
    else:
        assert found == expected or found != found, (found, expected)


def assert_as_in_python(pair: tuple[Any, Any], folder: Path) -> None:
    """Call the method of the first module cached and of the second as it is, and compare results and attributes."""
    net, twin = pair
    cached = gearcache.cache_compile(net.method, cache_dir=folder / "cache", config=strict_config())
    for number in range(3):
        x = torch.full((3, 4), float(number))
        assert_same(cached(x), twin.method(x))
        assert_same(vars(net), vars(twin))


def assert_refused(pair: tuple[Any, Any], words: str, folder: Path) -> None:
    """Call the method of the first module cached: an error names it and says why, and nothing has changed."""
    net, twin = pair
    cached = gearcache.cache_compile(net.method, cache_dir=folder / "cache", config=strict_config())
    with pytest.raises(CaptureError, match=words) as raised:
        cached(torch.ones(3, 4))
    assert "Net.method" in str(raised.value)
    assert_same(vars(net), vars(twin))
