"""A process that uses `torch.compile` as well serves what one without it has stored, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.relaunch import run_python

SERVE = """
import json, sys
import torch
import gearcache
def compile_other(): torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return torch.nn.ReLU()(self.linear(x))
when = sys.argv[1]
if when == "before":
    compile_other()
net = Net().eval()
attached = gearcache.attach(net, config=gearcache.CompilerConfig(backend="eager", strict=True))
x = torch.ones(2, 4)
right = torch.equal(net(x), net.forward(x))
if when == "between":
    compile_other()
right &= torch.equal(net(x), net.forward(x))
print(json.dumps([right, attached.stats.traces]))
"""


WRAPPED = """
import functools, json
import torch
from gearcache.guards.evidence.definition import definition
plain = definition(torch.nn.Module.__init__)
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
def wrappers(init):
    @functools.wraps(init)  # which gives it the `__module__` of Dynamo's function
    def one(self, *arguments, **named):
        init(self, *arguments, **named)
        self.training = False
    @functools.wraps(init)
    def other(self, *arguments, **named):
        init(self, *arguments, **named)
        self.training = None
    return one, other
now = torch.nn.Module.__init__
one, other = wrappers(now)
found = [definition(function) for function in (now, one, other)]
print(json.dumps([now.__module__, found[0] == plain, found[1] == plain, found[1] == found[2]]))
"""


def test_what_torch_compile_puts_around_init_is_no_change_and_what_wraps_it_is_one() -> None:
    assert run_python(WRAPPED) == ["torch._dynamo.mutation_guard", True, False, False]


@pytest.mark.parametrize(("first", "second"), [("never", "before"), ("between", "never")])
def test_graphs_whose_method_makes_modules_outlive_a_use_of_torch_compile(
    first: str, second: str, cache_dir: Path
) -> None:
    environ = {"TORCHAIR_CACHE_HOME": str(cache_dir)}
    assert run_python(SERVE, first, environ=environ, compiles=True) == [True, 1]
    assert run_python(SERVE, second, environ=environ) == [True, 0]
