"""Traced code that lies in no file: what `dataclass` writes, also behind a decorator as in transformers 5.24."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.relaunch import run_python

MODULE = """
import functools
from dataclasses import dataclass
import torch

class Renaming(type):
    def __setattr__(cls, name, value):
        if name == "__init__":
            init = value

            @functools.wraps(init)
            def __init__(self, *args, **kwargs):
                if "old" in kwargs:
                    kwargs["new"] = kwargs.pop("old")
                init(self, *args, **kwargs)

            value = __init__
        super().__setattr__(name, value)

class Base(dict, metaclass=Renaming):
    def __post_init__(self):
        self["new"], self["bias"] = self.new, self.bias

@dataclass
class Output(Base):
    new: torch.Tensor
    bias: float = 1.0

class Net(torch.nn.Module):
    def run(self, x):
        return Output(old=x * 2)
"""
PROGRAM = """
import json, sys, torch, gearcache
sys.path.insert(0, sys.argv[1])
from made import Net
net = Net()
config = gearcache.CompilerConfig(backend="eager", strict=True)
cached = gearcache.cache_compile(net.run, config=config, gears={"x": {0: [2]}}, cache_dir=sys.argv[1] + "/cache")
x = torch.ones(2, 3)
found, expected = cached(x), net.run(x)
assert type(found) is type(expected) and torch.equal(found["new"], expected["new"]) and found.bias == expected.bias
print(json.dumps({**cached.stats.to_dict(), "bias": found.bias, "why": cached.explain()}, default=str))
"""


@pytest.mark.slow
def test_a_generated_init_behind_a_decorator_is_compared(tmp_path: Path) -> None:
    def run(*, compiles: bool = True) -> Any:
        return run_python(PROGRAM, str(tmp_path), environ={"PYTHONDONTWRITEBYTECODE": "1"}, compiles=compiles)

    (tmp_path / "made.py").write_text(MODULE)
    assert run()["traces"] == 1
    assert run(compiles=False)["traces"] == 0
    (tmp_path / "made.py").write_text(MODULE.replace("bias: float = 1.0", "bias: float = 1.5"))
    changed = run()
    assert (changed["traces"], changed["bias"]) == (1, 1.5)
    (tmp_path / "made.py").write_text(MODULE.replace("    bias: float", "    more: int = 7\n    bias: float"))
    assert run()["traces"] == 1
