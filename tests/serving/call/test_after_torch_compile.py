"""A process that uses `torch.compile` as well serves what one without it has stored, and the other way round."""

from __future__ import annotations

from pathlib import Path

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


def test_graphs_whose_method_makes_modules_outlive_a_use_of_torch_compile(cache_dir: Path) -> None:
    environ = {"TORCHAIR_CACHE_HOME": str(cache_dir)}
    assert run_python(SERVE, "between", environ=environ, compiles=True) == [True, 1]
    for second in ("never", "before"):
        assert run_python(SERVE, second, environ=environ) == [True, 0]
