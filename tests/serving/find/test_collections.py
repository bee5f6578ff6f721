"""gearcache makes Python's collector walk the whole heap neither in its import nor in a load, rarely in a compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.fork_server import run_code
from tests.support.source_tree import ROOT

#: Counts full collections in each phase, with thresholds at which some thousand new objects suffice for one.
PROGRAM = """
import collections, gc, json, sys
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(8)])

    def decode(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x

model, phase, full = Model(), "", collections.Counter()

def note(when, info):
    if when == "start" and info["generation"] == 2:
        full[phase] += 1

def begin(name):
    global phase
    phase = "between"
    gc.freeze()
    gc.collect()  # of nothing: the next full pass comes as soon as something is new
    phase = name

gc.set_threshold(100, 2, 2)
gc.callbacks.append(note)
begin("import")
from gearcache import CompilerConfig, cache_compile
begin("made")
gears = {"x": {0: [1, 2, 4]}}
method = cache_compile(model.decode, config=CompilerConfig(backend="eager"), gears=gears, cache_dir=sys.argv[1])
begin("load")
passes = gc.get_stats()[0]["collections"]
method(torch.ones(2, 8))
passes = gc.get_stats()[0]["collections"] - passes
begin("end")
made = [[] for _ in range(10000)]
begin("")
state = [gc.isenabled(), gc.get_threshold()[0], method.stats.hits, passes]
print(json.dumps([state, full["import"], full["load"], full["end"]]))
"""


def test_neither_the_import_nor_a_load_sets_off_a_full_collection(tmp_path: Path) -> None:
    cold = run_code(PROGRAM, str(tmp_path), environ=os.environ, cwd=ROOT, compiles=True)
    assert cold.returncode == 0, cold.stderr
    is_enabled, threshold, hits, passes = json.loads(cold.stdout.splitlines()[-1])[0]
    assert (is_enabled, threshold, hits) == (True, 100, 0)
    assert passes < 500  # a trace makes some 100,000 objects that the collector would look at one hundred at a time
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    state, imported, loaded, at_the_end = json.loads(done.stdout.splitlines()[-1])
    assert state[:3] == [True, 100, 1]
    assert state[3] < 5
    assert (imported, loaded) == (0, 0)
    assert at_the_end > 0  # at these thresholds 10,000 objects are enough
