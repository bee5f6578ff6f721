"""Methods that look alike never meet: same class, name and line in another module, another script, another closure."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config

TEXT = """
import torch

def helper(x):
    return x {operation}

class Net(torch.nn.Module):
    def run(self, x):
        return helper(x)
"""
SCRIPT = (
    TEXT
    + """
import json, gearcache
from tests.support.scenarios import strict_config
net, x = Net(), torch.randn(2, 4)
cached = gearcache.cache_compile(net.run, config=strict_config())
right = torch.equal(cached(x), net.run(x))
print(json.dumps([right, cached.stats.traces, cached.stats.miss_reasons, cached.entry_path]))
"""
)


def _module(folder: Path, name: str, operation: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    (folder / f"{name}.py").write_text(TEXT.format(operation=operation))
    monkeypatch.syspath_prepend(str(folder))
    module = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    return module


@pytest.mark.slow
def test_equal_classes_in_two_scripts_share_an_entry_and_never_a_graph(cache_dir: Path) -> None:
    environ = {"TORCHAIR_CACHE_HOME": str(cache_dir)}
    scripts = [SCRIPT.format(operation=operation) for operation in ("* 2", "* 3")]
    first, second = (run_python(script, environ=environ, compiles=True) for script in scripts)
    assert (first[0], first[1]) == (True, 1)
    assert (second[0], second[1], second[3]) == (True, 1, first[3])
    assert "helper" in " ".join(second[2])
    for script in scripts:
        assert run_python(script, environ=environ)[:3] == [True, 0, []]


def test_code_edited_after_its_import_is_what_the_process_runs(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _module(tmp_path, "edited_later", "* 2", monkeypatch)
    monkeypatch.setitem(sys.modules, "edited_later", module)
    (tmp_path / "edited_later.py").write_text(TEXT.format(operation="* 3"))
    net, x = module.Net(), torch.randn(2, 4)
    for traces in (1, 0):
        cached = gearcache.cache_compile(net.run, config=strict_config())
        assert torch.equal(cached(x), x * 2)
        assert cached.stats.traces == traces
    monkeypatch.delitem(sys.modules, "edited_later")
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for path in (tmp_path / "__pycache__").glob("edited_later*"):
        path.unlink()
    fresh = importlib.import_module("edited_later")
    net = fresh.Net()
    cached = gearcache.cache_compile(net.run, config=strict_config())
    assert torch.equal(cached(x), x * 3)
    assert cached.stats.traces == 1
